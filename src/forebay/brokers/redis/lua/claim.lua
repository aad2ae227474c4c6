local due, claimed = {}, {}
for _, endpoint in ipairs(call('SMEMBERS', P .. 'de')) do
  local room = math.min(A.limit, math.max(0, A.rooms[endpoint] or A.each))
  if room > 0 then
    local rows = call('ZRANGEBYSCORE', P .. 'dd:' .. endpoint, '-inf', num(NOW), 'WITHSCORES', 'LIMIT', 0, room)
    for i = 1, #rows, 2 do due[#due + 1] = {tonumber(rows[i + 1]), rows[i], endpoint} end
  end
end
table.sort(due, function(a, b) if a[1] ~= b[1] then return a[1] < b[1] end return a[2] < b[2] end)
for i = 1, math.min(#due, A.limit) do
  local id, lapses = due[i][2], num(NOW + A.lease)
  call('HSET', P .. 'd:' .. id, 'st', '1', 'due', lapses)
  call('HINCRBY', P .. 'd:' .. id, 'tries', 1)
  schedule(id, due[i][3], lapses)
  claimed[i] = delivery(id)
end
return done(claimed)
