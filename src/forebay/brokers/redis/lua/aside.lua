call('HSET', P .. 'meta', 'left_at', num(NOW))
return 1
