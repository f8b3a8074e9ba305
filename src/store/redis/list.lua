-- An account's sessions, newest first. ARGV: how many to skip, how many to give.
local base, at, take = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local rows = {}
while #rows < take do
  local ids = redis.call('ZREVRANGE', base .. 'l', at, at + take - #rows - 1)
  if #ids == 0 then
    break
  end
  for _, session in ipairs(ids) do
    local held = row(base, session)
    if held then
      rows[#rows + 1] = held
    end
    -- What is gone leaves the list, where it may be written to.
    if held or redis.pcall('ZREM', base .. 'l', session) ~= 1 then
      at = at + 1
    end
  end
end
return rows
