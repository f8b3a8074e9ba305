-- The first key that points to a state: its index from 0, the state, the session's commands.
-- ARGV: the tenant, all keys concatenated, the age (ms).
local base, tenant, keys, age = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local total = #keys / 16
-- One of the first keys is nearly always present.
local first, size = 1, 8
while first <= total do
  local last = math.min(first + size - 1, total)
  local asked = {}
  for at = first, last do
    asked[#asked + 1] = place(base, tenant, sub(keys, at * 16 - 15, at * 16))
  end
  for at, pointer in ipairs(redis.call('MGET', unpack(asked))) do
    local kind = pointer and sub(pointer, 25, 25)
    if pointer and not ((kind == BARE or kind == LOOSE) and sub(pointer, 26, 26) == '\1') then
      local record = base .. 's' .. sub(pointer, 1, 16)
      local found = redis.call('HMGET', record, sub(pointer, 17, 24), 'o', 'r')
      if found[1] then
        renew(base, tenant, record, nil, found[3], age)
        return {first + at - 2, found[1], found[2] or ''}
      end
    end
  end
  first, size = last + 1, size * 4
end
return false
