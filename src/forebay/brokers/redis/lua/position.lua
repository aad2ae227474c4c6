-- How many come before a queued job, in each lane of its task.
local TIES_MAX = 1000
local id, h = A.id, load(A.id)
if not h or h.st ~= '1' then return false end
local own = h.prio .. '\0' .. h.tenant
local order = A.orders[h.task] or 'q'
local at = tonumber(order == 'q' and h.ready or h.dl or num(tonumber(h.ready) + NO_DEADLINE_S))
local lanes = {}
for i, lane in ipairs(call('SMEMBERS', P .. 'l:' .. h.task)) do
  local key = P .. order .. ':' .. h.task .. '\0' .. lane
  local ahead = lane == own and call('ZRANK', key, id)
  if not ahead then
    local prio = tonumber(string.match(lane, '^(%d+)'))
    local same = num(at + (tonumber(h.prio) - prio) * AGEING_S)
    ahead = call('ZCOUNT', key, '-inf', '(' .. same)
    for _, other in ipairs(call('ZRANGEBYSCORE', key, same, same, 'LIMIT', 0, TIES_MAX)) do
      if other < id then ahead = ahead + 1 end
    end
  end
  lanes[i] = {lane, call('ZCARD', key), ahead}
end
return {h.prio, h.tenant, h.chain and call('ZRANK', P .. 'c:' .. chain_of(h), id) or 0, lanes}
