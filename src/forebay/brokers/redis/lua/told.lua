for _, node in ipairs(call('ZRANGEBYSCORE', P .. 'nodes', '-inf', num(NOW - A.kept))) do
  call('HDEL', P .. 'nodes:d', node)
  call('ZREM', P .. 'nodes', node)
end
call('ZADD', P .. 'nodes', num(NOW), A.node)
call('HSET', P .. 'nodes:d', A.node, A.document)
return 1
