-- The version of the shared values, then names and values in turn.
return {redis.call('GET', KEYS[1] .. 'v'), redis.call('HGETALL', KEYS[1] .. 'h')}
