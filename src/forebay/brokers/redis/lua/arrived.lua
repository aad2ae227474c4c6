-- What belongs to no job, and that all of a store is here.
for _, mark in ipairs(A.marks) do
  call('HSET', P .. 'crons', mark[1], mark[2])
  if mark[3] then call('HSET', P .. 'cronj', mark[1], mark[3]) end
end
store_deadly(A.changes)
for _, tap in ipairs(A.taps) do call('HSET', P .. 'taps', tap[1], tap[2]) end
if A.secret then call('HSET', P .. 'origin', 'secret', A.secret, 'upto', A.upto) end
call('HSET', P .. 'origin', 'done_at', num(NOW))
owed = true
return done('done')
