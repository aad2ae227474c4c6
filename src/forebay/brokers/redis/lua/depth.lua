local lanes = {}
for i, lane in ipairs(call('SMEMBERS', P .. 'l:' .. A.task)) do
  local key = P .. 'q:' .. A.task .. '\0' .. lane
  lanes[i] = {lane, call('ZCARD', key), call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]}
end
local oldest = call('ZRANGE', P .. 'qa:' .. A.task, 0, 0, 'WITHSCORES')[2] or false
return {call('HGETALL', P .. 'n:' .. A.task), call('HGETALL', P .. 'b:' .. A.task),
  call('HGET', P .. 'taps', A.task) or '00', oldest, lanes}
