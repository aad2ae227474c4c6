local holds = {}
for i, claim in ipairs(A.claims) do
  local id, h = claim[1], load(claim[1])
  if not h or h.st ~= '2' or tonumber(h.fence) ~= claim[2] or tonumber(h.lu) <= NOW then
    holds[i] = 'l'
  else
    local set = {'lu', num(NOW + A.lease)}
    if claim[3] then set[#set + 1], set[#set + 2] = 'prog', claim[3] end
    if claim[4] then
      set[#set + 1], set[#set + 2] = 'chk', claim[4]
      link(id, h, 'c', claim[5])
    end
    call('HSET', of(id), unpack(set))
    call('ZADD', P .. 'run', set[2], id)
    holds[i] = h.asked and 'c' or 'h'
  end
end
return done(holds)
