-- A key of another type is found before the first write: a script that fails half-way keeps what it has written.
-- Takes pairs of key (without the tag) and type; answers what to return, or nil when all fit.
local fitting = {}

local function foreign_key(...)
  if fitting[(...)] and select('#', ...) == 2 then return end -- asked of every item of a batch
  local wanted = {...}
  for i = 1, #wanted, 2 do
    local key = wanted[i]
    if not fitting[key] then
      local found = redis.call('TYPE', TAG .. key).ok
      if found ~= 'none' and found ~= wanted[i + 1] then
        return {'broken', key .. ' is a ' .. found .. ', not a ' .. wanted[i + 1]}
      end
      fitting[key] = true
    end
  end
end
