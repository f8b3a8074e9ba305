-- An account's sessions, newest first. ARGV: how many to skip, how many to return.
local base, at, take = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local rows = {}
while #rows < take do
  local ids = redis.call('ZREVRANGE', base .. 'l', at, at + take - #rows - 1)
  if #ids == 0 then
    break
  end
  for _, session in ipairs(ids) do
    local found = row(base, session)
    if found then
      rows[#rows + 1] = found
    end
    -- Expired sessions are removed from the list, unless it is read-only.
    if found or redis.pcall('ZREM', base .. 'l', session) ~= 1 then
      at = at + 1
    end
  end
end
return rows
