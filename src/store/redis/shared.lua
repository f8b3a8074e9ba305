-- The version of what is shared, and all of it: names and values in turn.
return {redis.call('GET', KEYS[1] .. 'v'), redis.call('HGETALL', KEYS[1] .. 'h')}
