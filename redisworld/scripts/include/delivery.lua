-- A delivery is a stream entry pending under one consumer; only its holder may settle it.
local GROUP = 'workers'
local BATCH = 16 -- from so many items on, one look at all that the consumer holds is cheaper than one each
local settled = {} -- entries to acknowledge and delete, by stream: one command each for a whole batch
local looked_up = {}
local batch_size = 0 -- set by the commands that take batches

local function look_up(stream, consumer)
  local most = 2 * batch_size
  local pending = redis.pcall('XPENDING', TAG .. stream, GROUP, '-', '+', most, consumer)
  if pending.err then return {all = true} end
  local held = {all = #pending < most}
  for i = 1, #pending do held[pending[i][1]] = true end
  return held
end

local function holds(stream, entry, consumer)
  if entry == '' then return false end
  if batch_size >= BATCH then
    local held = looked_up[stream]
    if not held then
      held = look_up(stream, consumer)
      looked_up[stream] = held
    end
    if held[entry] or held.all then return held[entry] == true end
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
