-- The newest state of a session as a list of one, or of none. ARGV: the session.
return {row(KEYS[1], ARGV[1]) or nil}
