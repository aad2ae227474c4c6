if call('HGET', P .. 'meta', 'left_at') then return 0 end
call('HDEL', P .. 'meta', 'leaving')
return 1
