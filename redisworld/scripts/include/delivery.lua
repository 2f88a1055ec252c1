-- A delivery is a stream entry pending under one consumer; only its holder may settle it (but see usual_completions).
local BATCH = 8 -- from so many items on, one look at all of them is cheaper than one each
local settled = {} -- entries to acknowledge and delete, by stream: one command each for a whole batch
local batch = {} -- set by the commands that take batches: size, first and last entry
local held = {} -- what the look at a batch has found, by stream

-- A stream or group that is gone holds nothing; any other refusal is the call's.
local function pending_of(stream, first, last, most, consumer)
  local pending = redis.pcall('XPENDING', TAG .. stream, GROUP, first, last, most, consumer)
  if not pending.err then return pending end
  if string.find(pending.err, 'NOGROUP', 1, true) or string.find(pending.err, 'WRONGTYPE', 1, true) then return {} end
  return redis.call('XPENDING', TAG .. stream, GROUP, first, last, most, consumer)
end

local function look_at(stream, consumer)
  local found = {}
  for _, entry in ipairs(pending_of(stream, batch.first, batch.last, batch.size, consumer)) do found[entry[1]] = true end
  return found
end

local function holds(stream, entry, consumer)
  if entry == '' then return false end
  if batch.size and batch.size >= BATCH then
    if not held[stream] then held[stream] = look_at(stream, consumer) end
    if held[stream][entry] then return true end -- an entry out of order is looked for on its own
  end
  return #pending_of(stream, entry, entry, 1, consumer) > 0
end

-- Whether this very delivery is to continue the run: its message is responsible, and the caller holds it.
local function continues(run, message, stream, entry, consumer)
  return not run.terminal and run.wake == message and holds(stream, entry, consumer)
end

local function settle(stream, entry)
  local entries = settled[stream]
  if entries then entries[#entries + 1] = entry else settled[stream] = {entry} end
end

local function settle_if_held(stream, entry, consumer)
  if not holds(stream, entry, consumer) then return false end
  settle(stream, entry)
  return true
end

local function save_deliveries()
  for stream, entries in pairs(settled) do
    redis.call('XACK', TAG .. stream, GROUP, unpack(entries))
    redis.call('XDEL', TAG .. stream, unpack(entries))
  end
  settled = {}
end
