local function grant(id, h)
  call('HDEL', of(id), 'prog')
  if h.chain then call('HSET', P .. 'cr', chain_of(h), id) end
  shift(id, h, '2', {'att', num(tonumber(h.att or '0') + 1), 'fence', num(tonumber(h.fence or '0') + 1),
    'worker', A.worker, 'sa', num(NOW), 'lu', num(NOW + A.lease)})
  return {id, row(id)}
end

local LOOKED_MAX = 10000
local some_ended

local function ready_ids(lane, most)
  if some_ended == nil then
    local first_end = call('ZRANGE', P .. 'w', 0, 0, 'WITHSCORES')[2]
    some_ended = first_end and tonumber(first_end) <= NOW or false
  end
  local key, found, at = P .. A.order .. ':' .. A.task .. '\0' .. lane, {}, 0
  while #found < 2 * most and at < LOOKED_MAX do
    local part = call('ZRANGE', key, at, at + most - 1, 'WITHSCORES')
    if #part == 0 then break end
    at = at + most
    for i = 1, #part, 2 do
      local ends = some_ended and call('HGET', of(part[i]), 'wu')
      if #found < 2 * most and not (ends and tonumber(ends) <= NOW) then
        found[#found + 1] = part[i]
        found[#found + 1] = part[i + 1]
      end
    end
  end
  return found
end

-- Grant at once where one lane waits and nothing bounds it; else nil, and what waits, for core.turns to choose.
local function lease_line()
  local tap = call('HGET', P .. 'taps', A.task)
  local lanes = call('SMEMBERS', P .. 'l:' .. A.task)
  if #lanes == 0 or (tap and string.sub(tap, 1, 1) == '1') then return {} end
  if #lanes > 1 or A.bounded then return nil, lanes end
  local ids, leases = ready_ids(lanes[1], A.limit), {}
  for i = 1, #ids, 2 do leases[#leases + 1] = grant(ids[i], load(ids[i])) end
  return leases
end
