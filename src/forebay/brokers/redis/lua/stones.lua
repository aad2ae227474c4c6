-- What is remembered of removed jobs, from a place on: of a store that takes nothing any more.
local rows, found = call('ZRANGE', P .. 'gone', A.at, A.at + A.limit - 1, 'WITHSCORES'), {}
for i = 1, #rows, 2 do
  found[#found + 1] = {rows[i], call('HGET', P .. 'gone:n', rows[i]) or '', rows[i + 1]}
end
return found
