local function grant(id, h)
  call('HDEL', of(id), 'prog')
  if h.chain then call('HSET', P .. 'cr', chain_of(h), id) end
  shift(id, h, '2', {'att', num(tonumber(h.att or '0') + 1), 'fence', num(tonumber(h.fence or '0') + 1),
    'worker', A.worker, 'sa', num(NOW), 'lu', num(NOW + A.lease)})
  return {id, row(id)}
end
