-- Submissions; and a lease that came with them, where one line waits.
local receipts = {}
for i, item in ipairs(A.jobs) do receipts[i] = intake(item) end
if not A.task then return done(receipts) end
return done({receipts, lease_line() or false})
