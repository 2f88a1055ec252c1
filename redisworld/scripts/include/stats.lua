-- Exact counters of the partition, written once per call.
local counted = {}

local function count(name, by)
  counted[name] = (counted[name] or 0) + (by or 1)
end

-- What is no number, or too big a one, is not ours: that counter begins anew, since a script that fails here has written.
-- Any other refusal is raised: where this is the first write, OOM refuses the whole call.
local function save_stats()
  for name, by in pairs(counted) do
    local answer = redis.pcall('HINCRBY', TAG .. 'stats', name, by)
    local refused = type(answer) == 'table' and answer.err
    if refused and (string.find(refused, 'not an integer', 1, true) or string.find(refused, 'overflow', 1, true)) then
      redis.call('HSET', TAG .. 'stats', name, by)
    elseif refused then
      redis.call('HINCRBY', TAG .. 'stats', name, by)
    end
  end
end
