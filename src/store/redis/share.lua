-- Publishes a shared value; returns the new version, which was never used before.
-- After the base: v the version, h names and values, z names by the version of their last value.
-- ARGV: the name, the value, names at most, the age (ms).
local base, age = KEYS[1], tonumber(ARGV[4])
local version = math.max(clock(), (tonumber(redis.call('GET', base .. 'v')) or 0) + 1)
local written = string.format('%.0f', version)
redis.call('SET', base .. 'v', written, 'PX', life(age))
redis.call('HSET', base .. 'h', ARGV[1], ARGV[2])
redis.call('ZADD', base .. 'z', written, ARGV[1])
local over = redis.call('ZCARD', base .. 'z') - tonumber(ARGV[3])
if over > 0 then
  for _, name in ipairs(redis.call('ZRANGE', base .. 'z', 0, over - 1)) do
    redis.call('HDEL', base .. 'h', name)
  end
  redis.call('ZREMRANGEBYRANK', base .. 'z', 0, over - 1)
end
redis.call('PEXPIRE', base .. 'h', life(age))
redis.call('PEXPIRE', base .. 'z', life(age))
return written
