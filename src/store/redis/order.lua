-- Gives orders to a session; whether it is there. ARGV: the session, the orders.
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
