-- What every script begins with. ARGV: the prefix of all keys, the time or nothing, and what is asked.
-- A job is a hash: its fields are texts, absent where there is nothing. States are numbers (shared/states.py).
local P, call = ARGV[1], redis.call
local NOW = tonumber(ARGV[2])
if not NOW then
  local t = call('TIME')
  NOW = tonumber(t[1]) + tonumber(t[2]) / 1e6
end
local A = cmsgpack.unpack(ARGV[3])
local AGEING_S, NO_DEADLINE_S, INTERACTIVE = A.consts[1], A.consts[2], A.consts[3]

local ROW = {'j', 'task', 'tenant', 'prio', 'ver', 'fp', 'bh', 'meta', 'st', 'att', 'fence', 'deaths', 'rel',
  'susp', 'asked', 'ready', 'lu', 'worker', 'sa', 'fa', 'out', 'err', 'we', 'prog', 'atts', 'chk', 'deg', 'ca',
  'as', 'ed'}
local SEEN = {'st', 'task', 'tenant', 'prio', 'size', 'ready', 'dl', 'wu', 'ex', 'chain', 'url', 'ep', 'ik', 'iks',
  'fp', 'bh', 'cs', 'fa', 'fence', 'att', 'asked', 'lu', 'sa', 'lp', 'lo', 'lc', 'le', 'as'}
local WAITS = {['0'] = true, ['1'] = true, ['3'] = true}
local owed, jobs_by, bytes_by, runs_by = false, {}, {}, {}

local function num(x) return string.format('%.17g', x) end

local function of(id) return P .. 'j:' .. id end

local function row(id) return call('HMGET', of(id), unpack(ROW)) end

local function load(id)
  local v = call('HMGET', of(id), unpack(SEEN))
  if not v[1] then return nil end
  local h = {}
  for i, f in ipairs(SEEN) do h[f] = v[i] or nil end
  return h
end

local function is_final(st) return st >= '4' end

-- From when on an ended job is not known any more.
local function gone_at(h)
  if not h.fa then return math.huge end
  local kept = A.keep[3][h.task] or A.keep
  return tonumber(h.fa) + (h.st == '5' and kept[2] or kept[1])
end

-- Counts of each task by priority, state and tenant; of what runs by tenant and, less urgent, by task. What a
-- script changes is summed up and written once, at its end (settle_counts): `done` does it.
local function more(sums, key, field, by)
  local at = key .. '\0' .. field
  local one = sums[at]
  if one then one[3] = one[3] + by else sums[at] = {key, field, by} end
end

local function count(h, sign)
  local f = h.prio .. '\0' .. h.st .. '\0' .. h.tenant
  more(jobs_by, h.task, f, sign)
  more(bytes_by, h.task, f, sign * tonumber(h.size))
  if h.st == '2' then
    more(runs_by, 'rt', h.tenant, sign)
    if tonumber(h.prio) > INTERACTIVE then more(runs_by, 'ro', h.task, sign) end
  end
end

-- How many run, of a tenant (rt) or, less urgent, of a task (ro): with what this script has changed.
local function runs(key, field)
  local one = runs_by[key .. '\0' .. field]
  return tonumber(call('HGET', P .. key, field) or '0') + (one and one[3] or 0)
end

local function settle_counts()
  local counts = {}
  for at, one in pairs(jobs_by) do
    local task, f, by, size_by = one[1], one[2], one[3], bytes_by[at][3]
    if by ~= 0 or size_by ~= 0 then
      local nk, bk = P .. 'n:' .. task, P .. 'b:' .. task
      local jobs = call('HINCRBY', nk, f, by)
      local size = call('HINCRBY', bk, f, string.format('%d', size_by))
      if jobs == 0 then
        call('HDEL', nk, f)
        call('HDEL', bk, f)
        if call('EXISTS', nk) == 0 then call('SREM', P .. 'tasks', task) end
      elseif jobs == by then
        call('SADD', P .. 'tasks', task)
      end
      counts[#counts + 1] = {task, f, jobs, size}
    end
  end
  for _, one in pairs(runs_by) do
    if one[3] ~= 0 and call('HINCRBY', P .. one[1], one[2], one[3]) == 0 then call('HDEL', P .. one[1], one[2]) end
  end
  return counts
end

-- A chain: open jobs of one task, tenant and ordering key. Its head is what runs, else the least id.
local function chain_of(h) return h.task .. '\0' .. h.chain end

local function head(c) return call('HGET', P .. 'cr', c) or call('ZRANGE', P .. 'c:' .. c, 0, 0)[1] end

-- Lanes: what may be granted, of one task, priority and tenant, by arrival (q) and by deadline (e).
local function line_up(id, h)
  if h.chain and head(chain_of(h)) ~= id then return end
  local lane = h.prio .. '\0' .. h.tenant
  local at = h.task .. '\0' .. lane
  call('ZADD', P .. 'q:' .. at, h.ready, id)
  call('ZADD', P .. 'e:' .. at, h.dl or num(tonumber(h.ready) + NO_DEADLINE_S), id)
  call('SADD', P .. 'l:' .. h.task, lane)
end

local function step_out(id, h)
  local lane = h.prio .. '\0' .. h.tenant
  local at = h.task .. '\0' .. lane
  if call('ZREM', P .. 'q:' .. at, id) == 1 then
    call('ZREM', P .. 'e:' .. at, id)
    if call('EXISTS', P .. 'q:' .. at) == 0 then call('SREM', P .. 'l:' .. h.task, lane) end
  end
end

local function rouse(c)
  local id = head(c)
  local h = id and load(id)
  if h and h.st == '1' then line_up(id, h) end
end

local function enter(id, h)
  local c = chain_of(h)
  local before = head(c)
  call('ZADD', P .. 'c:' .. c, 0, id)
  if before and before ~= head(c) then
    local other = load(before)
    if other.st == '1' then step_out(before, other) end
  end
end

local function rest(id, h)
  if call('HGET', P .. 'cr', chain_of(h)) == id then call('HDEL', P .. 'cr', chain_of(h)) end
end

local function leave(id, h)
  rest(id, h)
  call('ZREM', P .. 'c:' .. chain_of(h), id)
  rouse(chain_of(h))
end

-- Where a job is found by its state: queued ones, those that wait for a time, leases, ends.
local function place(id, h)
  local st = h.st
  if st == '1' then
    call('ZADD', P .. 'qa:' .. h.task, h.ready, id)
    line_up(id, h)
  elseif st == '0' or st == '3' then
    call('ZADD', P .. 'due', h.ready, id)
  elseif st == '2' then
    call('ZADD', P .. 'run', h.lu, id)
  else
    call('ZADD', P .. (st == '5' and 'fd:' or 'f:') .. h.task, h.fa, id)
  end
  if h.wu and WAITS[st] then call('ZADD', P .. 'w', h.wu, id) end
end

local function unplace(id, h)
  local st = h.st
  if st == '1' then
    call('ZREM', P .. 'qa:' .. h.task, id)
    step_out(id, h)
  elseif st == '0' or st == '3' then
    call('ZREM', P .. 'due', id)
  elseif st == '2' then
    call('ZREM', P .. 'run', id)
  else
    call('ZREM', P .. (st == '5' and 'fd:' or 'f:') .. h.task, id)
  end
  if h.wu and WAITS[st] then call('ZREM', P .. 'w', id) end
end

-- Bring a job into another state, with the fields that go along.
local function shift(id, h, to, set)
  unplace(id, h)
  count(h, -1)
  h.st = to
  for i = 1, #set, 2 do h[set[i]] = set[i + 1] end
  count(h, 1)
  place(id, h)
  call('HSET', of(id), 'st', to, unpack(set))
end

-- Which blobs a job names in its payload (p), output (o), checkpoint (c), edited payload (e).
local function link(id, h, where, blobs)
  local f = 'l' .. where
  if h[f] then
    for _, blob in ipairs(cmsgpack.unpack(h[f])) do call('SREM', P .. 'blob:' .. blob, id .. where) end
    call('HDEL', of(id), f)
    h[f] = nil
  end
  if blobs and #blobs > 0 then
    for _, blob in ipairs(blobs) do call('SADD', P .. 'blob:' .. blob, id .. where) end
    h[f] = cmsgpack.pack(blobs)
    call('HSET', of(id), f, h[f])
  end
end

-- Deliveries: a hash, the log of its tries, and where it is found while it is open.
local function schedule(id, endpoint, due)
  call('ZADD', P .. 'dn', due, id)
  call('ZADD', P .. 'dd:' .. endpoint, due, id)
  call('SADD', P .. 'de', endpoint)
end

local function unschedule(id, endpoint)
  call('ZREM', P .. 'dn', id)
  call('ZREM', P .. 'dd:' .. endpoint, id)
  if call('EXISTS', P .. 'dd:' .. endpoint) == 0 then call('SREM', P .. 'de', endpoint) end
end

local function delivery(id)
  local v = call('HMGET', P .. 'd:' .. id, 'url', 'ep', 'st', 'tries', 'since', 'due', 'before', 'ended')
  if not v[1] then return nil end
  v[9] = call('LRANGE', P .. 'dg:' .. id, 0, -1)
  v[10] = id
  return v
end

local function owe(id, h, at)
  if not h.url then return end
  call('DEL', P .. 'dg:' .. id, P .. 'd:' .. id)
  call('HSET', P .. 'd:' .. id, 'url', h.url, 'ep', h.ep, 'st', '0', 'tries', '0', 'since', num(at), 'due',
    num(at), 'before', '0')
  schedule(id, h.ep, num(at))
  owed = true
end

-- Bring a job to its end; `bare` when what it had of its run is gone already.
local function finish(id, h, to, at, set, bare)
  set[#set + 1] = 'fa'
  set[#set + 1] = num(at)
  shift(id, h, to, set)
  if h.chain then leave(id, h) end
  if not bare then call('HDEL', of(id), 'chk', 'prog', 'lu', 'ca') end
  link(id, h, 'c', nil)
  owe(id, h, at)
end

local function end_waiting(id, h, to, event)
  local set = {'we', event, 'susp', '0'}
  if to == '6' then
    set[3], set[4], set[5], set[6] = 'asked', '1', 'susp', '0'
  end
  call('HDEL', of(id), 'err')
  finish(id, h, to, NOW, set)
end

-- Deadly inputs: stored as they were decided, while nobody else has changed them.
local function deadly_is_known() return (call('GET', P .. 'dv') or '0') == A.dv end

local function store_deadly(changes)
  for _, one in ipairs(changes) do
    if one[2] then call('HSET', P .. 'deadly', one[1], one[2]) else call('HDEL', P .. 'deadly', one[1]) end
  end
  if #changes > 0 then call('INCR', P .. 'dv') end
end

-- Submissions.
-- Let a key mean a job. Its own is a field of it; any number of others may join it, each in the same time.
local function name(id, key, hash, joins)
  if not key then return end
  call('HSET', P .. 'k', key, id .. hash)
  if joins then call('RPUSH', P .. 'ks:' .. id, key) end
end

-- The keys that were let mean a job: its own, those that joined it (`last`: the place of the last of them), and
-- what an earlier version kept of both.
local function names_of(id, own, kept, last)
  local keys = call('LRANGE', P .. 'ks:' .. id, 0, last)
  for _, key in ipairs(kept and cmsgpack.unpack(kept) or {own or nil}) do keys[#keys + 1] = key end
  return keys
end

local function known(key)
  local v = key and call('HGET', P .. 'k', key)
  if not v then return nil end
  local id = string.sub(v, 1, 36)
  return {id, string.sub(v, 37), call('HGET', of(id), 'st')}
end

local function twin_of(h)
  local id = h.fp and not h.from and call('ZREVRANGE', P .. 'tw:' .. h.fp, 0, 0)[1]
  local t = id and load(id)
  if not t or gone_at(t) <= NOW then return nil end
  if t.st == '4' then
    if tonumber(t.fa) + tonumber(t.cs) <= NOW then return nil end
  elseif is_final(t.st) or t.asked then
    return nil
  end
  return id, t
end

local function intake(item)
  local id, set, h = item[1], item[2], {}
  for i = 1, #set, 2 do h[set[i]] = set[i + 1] end
  local found = known(h.ik)
  if not found then
    local v = call('HMGET', of(id), 'bh', 'st')
    if v[2] then found = {id, v[1], v[2]} end
  end
  if found then return {found[2] == h.bh and 'r' or 'c', found[1], found[3]} end
  local twin, t = twin_of(h)
  if twin then
    name(twin, h.ik, h.bh, true)
    return {'j', twin, t.st}
  end
  h.st = tonumber(h.ready) > math.max(A.at, NOW) and '0' or '1'
  call('HSET', of(id), 'st', h.st, unpack(set))
  name(id, h.ik, h.bh, false)
  call('ZADD', P .. 'ids', 0, id)
  call('ZADD', P .. 'ids:t:' .. h.task, 0, id)
  if h.tenant ~= '' then call('ZADD', P .. 'ids:n:' .. h.tenant, 0, id) end
  if h.fp then call('ZADD', P .. 'tw:' .. h.fp, 0, id) end
  if h.chain then enter(id, h) end
  count(h, 1)
  place(id, h)
  link(id, h, 'p', item[3])
  return {'s', id, h.st}
end

-- The answer of a script that writes: the time, the counts it changed, when a delivery is due, what it found.
local function done(answer)
  return {num(NOW), settle_counts(), call('ZRANGE', P .. 'dn', 0, 0, 'WITHSCORES')[2] or false, owed and 1 or 0, answer}
end
