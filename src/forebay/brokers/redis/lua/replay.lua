local v = delivery(A.id)
if not v then return done(false) end
if v[3] ~= '1' then
  call('HDEL', P .. 'd:' .. A.id, 'ended')
  call('HSET', P .. 'd:' .. A.id, 'st', '0', 'since', num(NOW), 'due', num(NOW), 'before', v[4])
  schedule(A.id, v[2], num(NOW))
  owed = true
  v = delivery(A.id)
end
return done(v)
