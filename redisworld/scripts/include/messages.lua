-- Publishing: clear fields that people read with XRANGE, and the whole message in one field.
local function publish_step(stream, run_id, step_id, name, spec, body)
  return redis.call('XADD', TAG .. stream, '*', 'kind', 'step', 'spec', spec, 'run', run_id, 'step', step_id,
    'name', name, 'msg', body)
end

local function publish_workflow(stream, run_id, name, reason, spec, at, body)
  return redis.call('XADD', TAG .. stream, '*', 'kind', 'workflow', 'spec', spec, 'run', run_id, 'name', name,
    'reason', reason, 'at', string.format('%.0f', at), 'msg', body)
end

-- Tells the timer loops when something is due earlier than all that they know of.
local function add_delayed(due, member, body)
  local first = redis.call('ZRANGE', TAG .. 'delayed', 0, 0, 'WITHSCORES')
  redis.call('ZADD', TAG .. 'delayed', due, member)
  if body then redis.call('HSET', TAG .. 'delayed:body', member, body) end
  if not first[2] or tonumber(first[2]) > due then
    redis.call('XADD', TAG .. 'nudge', 'MAXLEN', 1, '*', 'due', string.format('%.0f', due))
  end
end
