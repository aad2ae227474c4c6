-- A store begins to leave, or goes on: what tells it from others, and when all of it had left.
call('HSETNX', P .. 'meta', 'leaving', A.fresh)
return call('HMGET', P .. 'meta', 'leaving', 'left_at')
