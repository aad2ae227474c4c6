local h = load(A.id)
if not h or h.st ~= '5' or gone_at(h) <= NOW then return done(0) end
call('HSET', of(A.id), 'ed', A.payload)
link(A.id, h, 'e', A.blobs)
return done(1)
