local receipts = {}
for i, item in ipairs(A.jobs) do receipts[i] = intake(item) end
return done(receipts)
