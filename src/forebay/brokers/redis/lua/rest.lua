return {call('ZCARD', P .. 'ids'), call('HGETALL', P .. 'deadly'), call('HGETALL', P .. 'taps'),
  call('HMGET', P .. 'origin', 'secret', 'upto')}
