-- Redis keeps a small hash as a list, and each look walks all of it. A row with the states of many steps is looked at by each
-- of them, so it becomes a table at once: it does with a value beyond hash-max-listpack-value, and stays one without it.
local WIDE = 32

local function widen(row, steps)
  if steps <= WIDE then return end
  redis.call('HSET', row, 'wide', string.rep('.', 65))
  redis.call('HDEL', row, 'wide')
end
