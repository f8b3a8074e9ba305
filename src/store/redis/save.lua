-- Saves a state under its keys and as its session's newest; 0 if the session belongs to another tenant.
-- ARGV: tenant, session, opening, exact, gap or nothing, bare, answer, state, loose keys or nothing; the age (ms),
-- sessions in the list at most; the rules of retention: generations at most and at least, bytes, bytes of a generation
-- without its state, siblings, conversations, bytes of the session, bytes of loose keys.
local base = KEYS[1]
local tenant, session, opening, exact, gap, bare, answer, state, loose = unpack(ARGV, 1, 9)
local rules = {}
for at = 10, #ARGV do
  rules[#rules + 1] = tonumber(ARGV[at])
end
local age, sessions, max_kept, min_kept, kept_bytes, beside, siblings, conversations, most, loose_bytes =
  unpack(rules)

local record = base .. 's' .. session
local known = redis.call('HMGET', record, 't', 'i', 'r')
if known[1] and known[1] ~= tenant then
  return 0
end

local entries = {}
local index = known[2] or ''
for at = 1, #index, ENTRY do
  entries[#entries + 1] = sub(index, at, at + ENTRY - 1)
end

-- A number that no generation of this session ever had, not even before an earlier expiry.
local now = clock()
local number = now
if #entries > 0 then
  local high, low = struct.unpack('>I4I4', entries[#entries])
  number = math.max(now, high * 4294967296 + low + 1)
end
local id = struct.pack('>I4I4', math.floor(number / 4294967296), number % 4294967296)

local seen = redis.call('GET', place(base, tenant, bare))
local ambiguous = '\0'
if seen and (sub(seen, 26, 26) == '\1' or sub(seen, 27, 34) ~= answer) then
  ambiguous = '\1'
end

-- A full server refuses the first write, so that either nothing or everything is written.
redis.call('HSET', record, id, state, 't', tenant, 's', math.floor(now / 1000000), 'n', id)
local target = session .. id
redis.call('SET', place(base, tenant, exact), target .. EXACT .. ambiguous .. answer, 'PX', life(age))
if gap ~= '' then
  redis.call('SET', place(base, tenant, gap), target .. GAP .. ambiguous .. answer, 'PX', life(age))
end
redis.call('SET', place(base, tenant, bare), target .. BARE .. ambiguous .. answer, 'PX', life(age))

-- A loose key under which two sessions have saved is ambiguous.
if loose ~= '' then
  redis.call('HSET', record, 'k' .. id, loose)
end
for at = 1, #loose, 16 do
  local name = place(base, tenant, sub(loose, at, at + 15))
  local known_by = redis.call('GET', name)
  local several = '\0'
  if known_by and (sub(known_by, 26, 26) == '\1' or sub(known_by, 1, 16) ~= session) then
    several = '\1'
  end
  redis.call('SET', name, target .. LOOSE .. several .. answer, 'PX', life(age))
end

-- Removes a generation and the keys that still point to it; keys that moved to another generation stay.
local function forget(at)
  local entry = table.remove(entries, at)
  local removed = session .. sub(entry, 1, 8)
  local asked, kinds = names(base, tenant, record, entry)
  redis.call('HDEL', record, sub(entry, 1, 8), 'k' .. sub(entry, 1, 8))
  for which, points in ipairs(redis.call('MGET', unpack(asked))) do
    if points and sub(points, 1, 25) == removed .. kinds[which] then
      redis.call('DEL', asked[which])
    end
  end
end

-- A retry with the same answer replaces the earlier generation.
for at, entry in ipairs(entries) do
  if sub(entry, 13, 28) == exact then
    forget(at)
    break
  end
end
local has_gap = gap ~= '' and '\1' or '\0'
local filled_gap = gap ~= '' and gap or string.rep('\0', 16)
local size = struct.pack('>I4', #state + (loose ~= '' and loose_bytes or 0))
entries[#entries + 1] = id .. opening .. exact .. bare .. has_gap .. filled_gap .. size

local function cost(entry)
  return beside + struct.unpack('>I4', entry, 62)
end

-- The index of a generation to drop, if a bound is passed.
local function superfluous()
  local oldest, alike, all = nil, 0, 0
  for at, entry in ipairs(entries) do
    all = all + cost(entry)
    if sub(entry, 29, 44) == bare then
      oldest = oldest or at
      alike = alike + 1
    end
  end
  if alike > siblings then
    return oldest
  end
  local kept, bytes, openings, several = 0, 0, {}, 0
  for at = #entries, 1, -1 do
    local group = sub(entries[at], 9, 12)
    if group == opening then
      kept, bytes = kept + 1, bytes + cost(entries[at])
      if kept > max_kept or (kept > min_kept and bytes > kept_bytes) then
        return at
      end
    end
    if not openings[group] then
      if several == conversations then
        return at
      end
      openings[group], several = true, several + 1
    end
  end
  return all > most and #entries > 1 and 1 or nil
end

local at = superfluous()
while at do
  forget(at)
  at = superfluous()
end
index = table.concat(entries)
redis.call('HSET', record, 'i', index)
redis.call('PEXPIRE', record, life(age))
renew(base, tenant, record, index, known[3], age)

local list = base .. 'l'
redis.call('ZADD', list, now, session)
redis.call('ZREMRANGEBYSCORE', list, 0, now - life(age) * 1000)
local over = redis.call('ZCARD', list) - sessions
if over > 0 then
  redis.call('ZREMRANGEBYRANK', list, 0, over - 1)
end
redis.call('PEXPIRE', list, life(age))
return 1
