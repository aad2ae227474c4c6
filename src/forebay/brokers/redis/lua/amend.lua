local id, h = A.id, load(A.id)
if not h then return done({'unknown'}) end
if is_final(h.st) then return done({gone_at(h) <= NOW and 'unknown' or 'final'}) end
if h.st == '2' then return done({'running'}) end
unplace(id, h)
if h.chain then leave(id, h) end
count(h, -1)
if A.prio then h.prio = A.prio end
local before = h.task
if A.task and A.task ~= h.task then
  call('ZREM', P .. 'ids:t:' .. h.task, id)
  call('ZADD', P .. 'ids:t:' .. A.task, 0, id)
  if h.fp then call('ZREM', P .. 'tw:' .. h.fp, id) end
  call('HDEL', of(id), 'fp')
  call('HSET', of(id), 'ver', A.ver)
  h.task, h.fp = A.task, nil
end
call('HSET', of(id), 'prio', h.prio, 'task', h.task)
if h.chain then enter(id, h) end
count(h, 1)
place(id, h)
return done({'amended', before, h.task, h.st})
