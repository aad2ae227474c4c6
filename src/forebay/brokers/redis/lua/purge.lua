-- Remove ended jobs: the named ones, or those longest past their retention. Of one that very many keys mean, as
-- many keys; the job itself the time after.
local JOINED_MAX = A.ids and 1000000 or 2000
local function past()
  local found = {}
  for _, task in ipairs(call('SMEMBERS', P .. 'tasks')) do
    for _, kind in ipairs({'f:', 'fd:'}) do
      local kept = A.keep[3][task] or A.keep
      local keeps = kind == 'fd:' and kept[2] or kept[1]
      local rows = call('ZRANGEBYSCORE', P .. kind .. task, '-inf', num(NOW - keeps + 1), 'WITHSCORES', 'LIMIT',
        0, A.limit)
      for i = 1, #rows, 2 do
        local at = tonumber(rows[i + 1]) + keeps
        if at <= NOW then found[#found + 1] = {at, rows[i]} end
      end
    end
  end
  table.sort(found, function(a, b) if a[1] ~= b[1] then return a[1] < b[1] end return a[2] < b[2] end)
  local ids = {}
  for i = 1, math.min(#found, A.limit) do ids[i] = found[i][2] end
  return ids
end

local function forget(id, h)
  for _, key in ipairs(names_of(id, h.ik, h.iks, JOINED_MAX - 1)) do
    local v = call('HGET', P .. 'k', key)
    if v and string.sub(v, 1, 36) == id then call('HDEL', P .. 'k', key) end
  end
  call('LTRIM', P .. 'ks:' .. id, JOINED_MAX, -1)
  if call('EXISTS', P .. 'ks:' .. id) == 1 then return 0 end
  count(h, -1)
  unplace(id, h)
  for _, where in ipairs({'p', 'o', 'c', 'e'}) do link(id, h, where, nil) end
  if h.fp then call('ZREM', P .. 'tw:' .. h.fp, id) end
  call('ZREM', P .. 'ids', id)
  call('ZREM', P .. 'ids:t:' .. h.task, id)
  if h.tenant ~= '' then call('ZREM', P .. 'ids:n:' .. h.tenant, id) end
  if h.ep then unschedule(id, h.ep) end
  call('DEL', of(id), P .. 'd:' .. id, P .. 'dg:' .. id)
  call('ZADD', P .. 'gone', num(NOW), id)
  if h.tenant ~= '' then call('HSET', P .. 'gone:n', id, h.tenant) end
  return 1
end

local purged = 0
for _, id in ipairs(A.ids or past()) do
  local h = load(id)
  if h and is_final(h.st) then
    purged = purged + forget(id, h)
  end
end
if not A.ids then
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'gone', '-inf', num(NOW - A.gone_kept), 'LIMIT', 0, A.limit)) do
    call('ZREM', P .. 'gone', id)
    call('HDEL', P .. 'gone:n', id)
  end
end
return done(purged)
