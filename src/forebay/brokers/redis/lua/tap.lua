local now = call('HGET', P .. 'taps', A.task) or '00'
local at = A.tap == 'paused' and 1 or 2
now = string.sub(now, 1, at - 1) .. A.to .. string.sub(now, at + 1)
if now == '00' then call('HDEL', P .. 'taps', A.task) else call('HSET', P .. 'taps', A.task, now) end
return done(now)
