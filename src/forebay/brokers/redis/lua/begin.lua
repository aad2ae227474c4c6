-- A store begins to arrive, or goes on: 'done' where all of it is here, 'other' where something else is.
local v = call('HMGET', P .. 'origin', 'name', 'done_at')
if v[1] == A.name then return done(v[2] and 'done' or 'goes on') end
if v[1] then return done('other') end
for _, key in ipairs({'ids', 'k', 'crons', 'deadly'}) do
  if call('EXISTS', P .. key) == 1 then return done('other') end
end
call('HSET', P .. 'origin', 'name', A.name)
return done('begins')
