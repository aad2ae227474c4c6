-- Ids of queued jobs of a task, those that wait longest first.
return call('ZRANGE', P .. 'qa:' .. A.task, 0, A.limit - 1)
