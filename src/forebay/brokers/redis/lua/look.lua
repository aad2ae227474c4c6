local tasks, dv = {}, call('GET', P .. 'dv') or '0'
for i, task in ipairs(call('SMEMBERS', P .. 'tasks')) do
  tasks[i] = {task, call('HGETALL', P .. 'n:' .. task), call('HGETALL', P .. 'b:' .. task)}
end
return done({tasks, call('HGETALL', P .. 'taps'), dv, dv ~= A.dv and call('HGETALL', P .. 'deadly') or false})
