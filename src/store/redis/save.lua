-- Files a state under its keys and as its session's newest. 0: the session is another tenant's.
-- ARGV: tenant, session, opening, exact, gap or nothing, bare, answer, state; the age (ms), sessions in
-- the list; what is kept: generations at most and at least, bytes, bytes of a generation beside its
-- state, siblings, conversations, bytes of the session.
local base = KEYS[1]
local tenant, session, opening, exact, gap, bare, answer, state = unpack(ARGV, 1, 8)
local rules = {}
for at = 9, #ARGV do
  rules[#rules + 1] = tonumber(ARGV[at])
end
local age, sessions, max_kept, min_kept, kept_bytes, beside, siblings, conversations, most =
  unpack(rules)

local record = base .. 's' .. session
local had = redis.call('HMGET', record, 't', 'i', 'r')
if had[1] and had[1] ~= tenant then
  return 0
end

local entries = {}
local index = had[2] or ''
for at = 1, #index, ENTRY do
  entries[#entries + 1] = sub(index, at, at + ENTRY - 1)
end

-- A number that no generation of this session had, not even before it was forgotten and began anew.
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

-- First what a full server refuses: then nothing was written, and after it nothing is refused.
redis.call('HSET', record, id, state, 't', tenant, 's', math.floor(now / 1000000), 'n', id)
local held = session .. id
redis.call('SET', place(base, tenant, exact), held .. EXACT .. ambiguous .. answer, 'PX', life(age))
if gap ~= '' then
  redis.call('SET', place(base, tenant, gap), held .. GAP .. ambiguous .. answer, 'PX', life(age))
end
redis.call('SET', place(base, tenant, bare), held .. BARE .. ambiguous .. answer, 'PX', life(age))

-- Drops a generation and the keys that still point to it; those that went over to another stay.
local function forget(at)
  local entry = table.remove(entries, at)
  redis.call('HDEL', record, sub(entry, 1, 8))
  local mine = session .. sub(entry, 1, 8)
  local asked, kinds = names(base, tenant, entry)
  for which, points in ipairs(redis.call('MGET', unpack(asked))) do
    if points and sub(points, 1, 25) == mine .. kinds[which] then
      redis.call('DEL', asked[which])
    end
  end
end

-- A retry with the same answer replaces what it gave before.
for at, entry in ipairs(entries) do
  if sub(entry, 13, 28) == exact then
    forget(at)
    break
  end
end
local has_gap = gap ~= '' and '\1' or '\0'
local filled_gap = gap ~= '' and gap or string.rep('\0', 16)
local size = struct.pack('>I4', #state)
entries[#entries + 1] = id .. opening .. exact .. bare .. has_gap .. filled_gap .. size

local function cost(entry)
  return beside + struct.unpack('>I4', entry, 62)
end

-- The place of a generation to drop, if one of the bounds is passed.
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
    local of = sub(entries[at], 9, 12)
    if of == opening then
      kept, bytes = kept + 1, bytes + cost(entries[at])
      if kept > max_kept or (kept > min_kept and bytes > kept_bytes) then
        return at
      end
    end
    if not openings[of] then
      if several == conversations then
        return at
      end
      openings[of], several = true, several + 1
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
renew(base, tenant, record, index, had[3], age)

local list = base .. 'l'
redis.call('ZADD', list, now, session)
redis.call('ZREMRANGEBYSCORE', list, 0, now - life(age) * 1000)
local over = redis.call('ZCARD', list) - sessions
if over > 0 then
  redis.call('ZREMRANGEBYRANK', list, 0, over - 1)
end
redis.call('PEXPIRE', list, life(age))
return 1
