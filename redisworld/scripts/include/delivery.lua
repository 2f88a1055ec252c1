-- A delivery is a stream entry pending under one consumer; only its holder may settle it.
local GROUP = 'workers'
local BATCH = 8 -- from so many items on, one look at all of them is cheaper than one each
local settled = {} -- entries to acknowledge and delete, by stream: one command each for a whole batch
local batch = {} -- set by the commands that take batches: size, first and last entry
local held = {} -- what the look at a batch has found, by stream

local function look_at(stream, consumer)
  local found = {}
  local pending = redis.pcall('XPENDING', TAG .. stream, GROUP, batch.first, batch.last, batch.size, consumer)
  if not pending.err then
    for i = 1, #pending do found[pending[i][1]] = true end
  end
  return found
end

local function holds(stream, entry, consumer)
  if entry == '' then return false end
  if batch.size and batch.size >= BATCH then
    if not held[stream] then held[stream] = look_at(stream, consumer) end
    if held[stream][entry] then return true end -- an entry out of order is looked for on its own
  end
  local pending = redis.pcall('XPENDING', TAG .. stream, GROUP, entry, entry, 1, consumer)
  return not pending.err and #pending > 0
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
