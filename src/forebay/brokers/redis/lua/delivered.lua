local settled = {}
for i, step in ipairs(A.steps) do
  local v = call('HMGET', P .. 'd:' .. step.id, 'st', 'tries', 'ep')
  if v[1] == '1' and tonumber(v[2]) == step.number then
    local key = P .. 'd:' .. step.id
    call('HSET', key, 'st', step.st)
    call('RPUSH', P .. 'dg:' .. step.id, step.tried)
    call('LTRIM', P .. 'dg:' .. step.id, -A.kept, -1)
    if step.due then
      call('HSET', key, 'due', step.due)
      schedule(step.id, v[3], step.due)
    else
      call('HDEL', key, 'due')
      unschedule(step.id, v[3])
    end
    if step.ended then call('HSET', key, 'ended', step.ended) else call('HDEL', key, 'ended') end
    settled[i] = 1
  else
    settled[i] = 0
  end
end
return done(settled)
