-- A run belongs to the deployment that its row names. A pass or a body that was under way when the run was moved knows the
-- one it had, and so does a message from then: what goes to a stream of some deployment's own goes to that of the row.
local function in_place(run, target)
  local stream = string.match(target, '^([^@]+)@')
  if not stream or run.absent or run.broken then return target end
  if run.deployment == nil then run.deployment = redis.call('HGET', run.row, 'deployment') or '' end
  return run.deployment == '' and stream or stream .. '@' .. run.deployment
end
