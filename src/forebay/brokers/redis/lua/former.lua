return call('HMGET', P .. 'origin', 'secret', 'upto')
