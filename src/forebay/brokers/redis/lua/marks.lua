return {call('HGETALL', P .. 'crons'), call('HGETALL', P .. 'cronj')}
