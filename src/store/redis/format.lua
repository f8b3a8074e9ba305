-- Writes the format of this release, or fails if a newer one is there.
-- After the base: f the format. ARGV: the format of this release, the age (ms).
local name, own = KEYS[1] .. 'f', tonumber(ARGV[1])
local found = tonumber(redis.call('GET', name) or 0)
if found > own then
  return redis.error_reply('NEWER format ' .. found .. ', this one supports ' .. own)
end
return redis.call('SET', name, own, 'PX', life(tonumber(ARGV[2])))
