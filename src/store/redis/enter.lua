-- Adds a session to the list of all accounts; returns the version of the shared values.
-- After the base: l the sessions and their accounts by the time of their last save (us), o the account of
-- each session, f the format (`format.lua`), which lives as long as they do. ARGV: the account, the session, the age (ms), sessions in the list at most, the format of this release.
local base, account, session, age = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local list, owners = base .. 'l', base .. 'o'
local now = clock()
redis.call('ZADD', list, now, session .. account)
redis.call('HSET', owners, session, account)
-- Removes some expired sessions, and some over the limit.
local gone = redis.call('ZRANGEBYSCORE', list, 0, now - life(age) * 1000, 'LIMIT', 0, 64)
local over = redis.call('ZCARD', list) - #gone - tonumber(ARGV[4])
if over > 0 then
  gone = redis.call('ZRANGE', list, 0, #gone + math.min(over, 64) - 1)
end
for _, member in ipairs(gone) do
  redis.call('ZREM', list, member)
  if redis.call('HGET', owners, sub(member, 1, 16)) == sub(member, 17) then
    redis.call('HDEL', owners, sub(member, 1, 16))
  end
end
redis.call('PEXPIRE', list, life(age))
redis.call('PEXPIRE', owners, life(age))
-- It is gone after a FLUSHALL, an eviction or a failover to an empty server, and then this release is the first again.
redis.call('SET', base .. 'f', ARGV[5], 'NX', 'PX', life(age))
redis.call('PEXPIRE', base .. 'f', life(age))
return redis.call('GET', base .. 'v')
