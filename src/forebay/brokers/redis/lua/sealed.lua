if call('HGET', P .. 'meta', 'leaving') then
  return redis.error_reply('LEFT its jobs are moved to another engine')
end
