call('ZREM', P .. 'nodes', A.node)
call('HDEL', P .. 'nodes:d', A.node)
return 1
