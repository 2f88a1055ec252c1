-- A delivery is a stream entry pending under one consumer; only its holder may settle it.
local GROUP = 'workers'

local function holds(stream, entry, consumer)
  if entry == '' then return false end
  local pending = redis.pcall('XPENDING', TAG .. stream, GROUP, entry, entry, 1, consumer)
  return not pending.err and #pending > 0
end

local function settle(stream, entry)
  redis.call('XACK', TAG .. stream, GROUP, entry)
  redis.call('XDEL', TAG .. stream, entry)
end

local function settle_if_held(stream, entry, consumer)
  if not holds(stream, entry, consumer) then return false end
  settle(stream, entry)
  return true
end
