-- Marks of cron entries: put one in the place of what was seen, with the job of its instant.
if (call('HGET', P .. 'crons', A.name) or '') ~= A.seen then return done('stale') end
local receipt = A.job and intake(A.job) or false
call('HSET', P .. 'crons', A.name, A.mark)
if receipt then call('HSET', P .. 'cronj', A.name, receipt[2]) end
return done({receipt})
