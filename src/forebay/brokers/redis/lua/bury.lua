for _, stone in ipairs(A.stones) do
  local id, tenant, at = unpack(stone)
  call('ZADD', P .. 'gone', num(at > 0 and at or NOW), id)
  if tenant ~= '' then call('HSET', P .. 'gone:n', id, tenant) end
end
return done(#A.stones)
