local h = load(A.id)
if not h or h.st ~= '5' or gone_at(h) <= NOW then return done(false) end
local st = h.as and call('HGET', of(h.as), 'st')
if st then return done({'r', h.as, st}) end
local receipt = intake(A.job)
if receipt[1] == 's' then call('HSET', of(A.id), 'as', receipt[2]) end
return done(receipt)
