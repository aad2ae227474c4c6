local rows, found = call('ZRANGEBYSCORE', P .. 'nodes', '(' .. num(NOW - A.within), '+inf', 'WITHSCORES'), {}
for i = 1, #rows, 2 do
  found[#found + 1] = {rows[i], num(NOW - tonumber(rows[i + 1])), call('HGET', P .. 'nodes:d', rows[i])}
end
return found
