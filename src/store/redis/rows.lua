-- The newest states of some sessions, false for those that are not there. ARGV: all ids in a row.
local rows = {}
for at = 1, #ARGV[1], 16 do
  rows[#rows + 1] = row(KEYS[1], sub(ARGV[1], at, at + 15))
end
return rows
