-- Common functions of the scripts. The keys of an account, after its base:
--   k TENANT KEY   the pointer of a state key: the session (16 bytes), the generation (8), its kind (1),
--                  whether the bare or the loose key is ambiguous (1), the answer (8)
--   s SESSION      a hash: t the tenant, s the time of the last save (seconds), n the newest generation,
--                  i the index of its generations, r the time of the last renewal (ms), o the commands,
--                  the state of each generation under its number, and its loose keys (16 each) under k and its number
--   l              the account's sessions by the time of their last save (us)

local sub = string.sub

-- An entry of the index: the generation (8), the opening (4), the keys exact and bare (16 each),
-- whether there is a gap key (1), the gap key (16), the bytes of the state (4).
local ENTRY = 65

local EXACT, GAP, BARE, LOOSE = '\1', '\2', '\3', '\4'

-- Microseconds since 1970.
local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- The time to live for a life of `age` after each use, with one renewal in an eighth of `age`.
local function life(age)
  return math.floor(age + age / 8)
end

local function place(base, tenant, key)
  return base .. 'k' .. tenant .. key
end

-- The names of all keys of an entry, and their kinds.
local function names(base, tenant, record, entry)
  local found = {place(base, tenant, sub(entry, 13, 28)), place(base, tenant, sub(entry, 29, 44))}
  local kinds = {EXACT, BARE}
  if sub(entry, 45, 45) == '\1' then
    found[3] = place(base, tenant, sub(entry, 46, 61))
    kinds[3] = GAP
  end
  local loose = redis.call('HGET', record, 'k' .. sub(entry, 1, 8)) or ''
  for at = 1, #loose, 16 do
    found[#found + 1] = place(base, tenant, sub(loose, at, at + 15))
    kinds[#found] = LOOSE
  end
  return found, kinds
end

-- Renews a whole session, unless it was renewed recently. A failed write is ignored, so that a full server still
-- serves finds.
local function renew(base, tenant, record, index, renewed, age)
  local now = math.floor(clock() / 1000)
  local since = now - (tonumber(renewed) or 0)
  if since >= 0 and since < age / 8 then
    return
  end
  local written = redis.pcall('HSET', record, 'r', now)
  if type(written) == 'table' and written.err then
    return
  end
  redis.call('PEXPIRE', record, life(age))
  index = index or redis.call('HGET', record, 'i') or ''
  for at = 1, #index, ENTRY do
    for _, name in ipairs((names(base, tenant, record, sub(index, at, at + ENTRY - 1)))) do
      redis.call('PEXPIRE', name, life(age))
    end
  end
end

-- The newest state of a session, or false.
local function row(base, session)
  local fields = redis.call('HMGET', base .. 's' .. session, 't', 's', 'n', 'o')
  if not fields[1] or not fields[3] then
    return false
  end
  local state = redis.call('HGET', base .. 's' .. session, fields[3])
  return state and {fields[1], session, fields[2] or '0', state, fields[4] or ''}
end
