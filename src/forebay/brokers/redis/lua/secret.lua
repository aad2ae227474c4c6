-- A secret of the store: made once.
call('HSETNX', P .. 'meta', A.name, A.fresh)
return call('HGET', P .. 'meta', A.name)
