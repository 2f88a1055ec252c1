-- How long what has ended is kept beyond its retention: the reaper deletes, the TTL only catches what it missed.
local BACKSTOP_MS = 86400000
