-- Replaces the commands of a session; 0 if there is no such session. ARGV: the session, the commands.
local record = KEYS[1] .. 's' .. ARGV[1]
if redis.call('EXISTS', record) == 0 then
  return 0
end
if ARGV[2] == '' then
  redis.call('HDEL', record, 'o')
else
  redis.call('HSET', record, 'o', ARGV[2])
end
return 1
