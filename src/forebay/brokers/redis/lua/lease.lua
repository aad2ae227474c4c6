-- Grant at once where one lane waits and nothing bounds it; else say what waits, for core.turns to choose.
local LOOKED_MAX = 10000
local tap = call('HGET', P .. 'taps', A.task)
local lanes = call('SMEMBERS', P .. 'l:' .. A.task)
if #lanes == 0 or (tap and string.sub(tap, 1, 1) == '1') then return done({'1', {}}) end
local first_end = call('ZRANGE', P .. 'w', 0, 0, 'WITHSCORES')[2]
local some_ended = first_end and tonumber(first_end) <= NOW

local function ready_ids(lane, most)
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

if #lanes == 1 and not A.bounded then
  local ids, leases = ready_ids(lanes[1], A.limit), {}
  for i = 1, #ids, 2 do leases[#leases + 1] = grant(ids[i], load(ids[i])) end
  return done({'1', leases})
end
local each, shown, running = math.min(A.limit, math.max(1, math.floor(A.candidates_max / #lanes))), {}, {}
for i, lane in ipairs(lanes) do shown[i] = {lane, ready_ids(lane, each)} end
for i, tenant in ipairs(A.tenants) do running[i] = call('HGET', P .. 'rt', tenant) or '0' end
return done({'0', shown, running, call('HGET', P .. 'ro', A.task) or '0'})
