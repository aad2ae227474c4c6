-- A lease of one line, or what waits in several.
local leases, lanes = lease_line()
if leases then return done({'1', leases}) end
local each, shown, running = math.min(A.limit, math.max(1, math.floor(A.candidates_max / #lanes))), {}, {}
for i, lane in ipairs(lanes) do shown[i] = {lane, ready_ids(lane, each)} end
for i, tenant in ipairs(A.tenants) do running[i] = call('HGET', P .. 'rt', tenant) or '0' end
return done({'0', shown, running, call('HGET', P .. 'ro', A.task) or '0'})
