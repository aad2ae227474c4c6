return {call('SMEMBERS', P .. 'tasks'), call('HKEYS', P .. 'taps')}
