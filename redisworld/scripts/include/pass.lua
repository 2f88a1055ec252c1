-- What a call of commit_pass is about; what the pass asks for follows from ARGV[ITEMS] on.
local now, consumer, run_id, replayed_to, consumed, message, stream, entry, pass, chunk, last, limit, retention, spec,
  started_at = unpack(ARGV, 1, 15)
local ITEMS = 16

local function decimal(number) return string.format('%.0f', number) end

-- What the usual passes share. Whether the arguments that all of them use are what they should be.
local function fits_pass()
  return is_number(now) and some_number(consumed) and some_number(limit) and some_number(retention) and some_number(spec)
    and some_plain(run_id) and some_plain(message) and some_plain(pass) and is_stream(stream) and is_entry(entry)
end

-- Whether the row's pass is a word of this one, and what it says begins so.
local function is_of_pass(done, said)
  local begin = pass .. ' ' .. (said or '')
  return string.sub(done or '', 1, #begin) == begin
end

local function holds_entry()
  local held = redis.pcall('XPENDING', TAG .. stream, GROUP, entry, entry, 1, consumer)
  return not held.err and held[1]
end

local function settle_entry()
  redis.call('XACK', TAG .. stream, GROUP, entry)
  redis.call('XDEL', TAG .. stream, entry)
end

-- The state of a step that starts under this message, where number is that of its step_created, which its start follows.
local function started_state(id, token, group, number)
  return 'running|1|0|' .. token .. '|' .. (message == id and '' or message) .. '|' .. entry_name(stream, entry) .. '|' .. group
    .. '|' .. number .. '|0|0|' .. number + 1
end
