local at = call('ZSCORE', P .. 'gone', A.id)
return at and (call('HGET', P .. 'gone:n', A.id) or '') or false
