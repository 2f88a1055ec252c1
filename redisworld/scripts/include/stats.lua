-- Exact counters of the partition, written once per call.
local counted = {}

local function count(name, by)
  counted[name] = (counted[name] or 0) + (by or 1)
end

local function save_stats()
  for name, by in pairs(counted) do must_add(name, by) end
end
