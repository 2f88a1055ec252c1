-- Keys of the partition that KEYS[1] belongs to; the tag keeps every one of them in its slot.
local TAG = string.match(KEYS[1], '^(.-{[^}]*}:)')

local function row_key(run_id) return TAG .. 'run:' .. run_id end
local function log_key(run_id) return TAG .. 'run:' .. run_id .. ':log' end
