-- What a call of commit_pass is about; what the pass asks for follows from ARGV[ITEMS] on.
local now, consumer, run_id, replayed_to, consumed, message, stream, entry, pass, chunk, last, limit, retention, spec,
  started_at = unpack(ARGV, 1, 15)
local ITEMS = 16

local function decimal(number) return string.format('%.0f', number) end
