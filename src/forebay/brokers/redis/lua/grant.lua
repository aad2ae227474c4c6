-- Grant what core.turns chose, as far as it is still so: another server may have been first.
local leases, missed = {}, 0
local tap = call('HGET', P .. 'taps', A.task)
local paused = tap and string.sub(tap, 1, 1) == '1'
for _, id in ipairs(A.ids) do
  local h = load(id)
  local goes = h and not paused and h.st == '1' and h.task == A.task
    and not (h.wu and tonumber(h.wu) <= NOW) and not (h.chain and head(chain_of(h)) ~= id)
  if goes then
    local most = A.running_max[h.tenant]
    goes = not most or runs('rt', h.tenant) < most
  end
  if goes and A.others_max and tonumber(h.prio) > INTERACTIVE then
    goes = runs('ro', A.task) < A.others_max
  end
  if goes then leases[#leases + 1] = grant(id, h) else missed = missed + 1 end
end
return done({leases, missed})
