-- Whether the delivery that a step's state names lives: pending under somebody, and not deleted, or nobody could claim it.
local function entry_lives(name)
  local entry, stream = entry_of(name)
  if entry == '' then return false end
  local pending = redis.pcall('XPENDING', TAG .. stream, GROUP, entry, entry, 1)
  return not pending.err and #pending > 0 and #redis.call('XRANGE', TAG .. stream, entry, entry) > 0
end
