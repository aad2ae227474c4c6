local expired, promoted, overdue = {}, {}, {}
for i, id in ipairs(call('ZRANGEBYSCORE', P .. 'w', '-inf', num(NOW), 'LIMIT', 0, A.limit)) do
  local h = load(id)
  end_waiting(id, h, '7', (h.dl and tonumber(h.dl) == tonumber(h.wu)) and A.deadline or A.ttl)
  expired[i] = {id, h.task}
end
for i, id in ipairs(call('ZRANGEBYSCORE', P .. 'due', '-inf', num(NOW), 'LIMIT', 0, A.limit)) do
  local h = load(id)
  shift(id, h, '1', {'ready', h.ready})
  promoted[i] = {id, h.task}
end
for i, id in ipairs(call('ZRANGEBYSCORE', P .. 'run', '-inf', num(NOW), 'LIMIT', 0, A.limit)) do
  overdue[i] = {id, row(id)}
end
return done({expired, promoted, overdue})
