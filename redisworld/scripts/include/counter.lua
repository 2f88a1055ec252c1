-- Adds to a counter of the partition at once; answers what Redis refuses it with, if it does: OOM, a key of another type.
-- What is no number, or too big a one, is not ours: that counter begins anew, since a script that fails here has written.
local function add(name, by)
  local answer = redis.pcall('HINCRBY', TAG .. 'stats', name, by)
  local refused = type(answer) == 'table' and answer.err
  if refused and (string.find(refused, 'not an integer', 1, true) or string.find(refused, 'overflow', 1, true)) then
    answer = redis.pcall('HSET', TAG .. 'stats', name, by)
    refused = type(answer) == 'table' and answer.err
  end
  return refused
end

-- The same, where a refusal has to fail the call. As the first write of a script it lets OOM refuse the whole call.
local function must_add(name, by)
  if add(name, by) then redis.call('HINCRBY', TAG .. 'stats', name, by) end
end
