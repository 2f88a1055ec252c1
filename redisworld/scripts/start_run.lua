-- start_run: creates a run and its first message, once per run id; the message comes now, or when the run is due.
-- @key stats            hash: counters of the partition
-- @derived row log streams indexes delayed bodies nudge
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg run_id
-- @arg workflow         its name
-- @arg deployment
-- @arg pin              '@<deployment>' when messages go to the deployment's own streams, else ''
-- @arg spec             spec version of message and events
-- @arg root             root run id
-- @arg created          payload of run_created
-- @arg message          the first message, with message id 'start'
-- @arg delay            ms from now until the run starts, 0 for at once
-- @arg start_at         time in ms at which it starts instead, or ''
-- @returns created created_at | conflict status workflow created_at | broken
-- @include partition arguments clock types stats run messages
local now, run_id, workflow, deployment, pin, spec, root, created, message, wait_ms, start_at = unpack(ARGV)

local refused = arity(11) or numbers('now?', now, 'spec', spec, 'delay', wait_ms, 'start_at?', start_at) or plain('run_id', run_id, 'workflow', workflow,
  'deployment?', deployment, 'pin?', pin, 'root', root)
if refused then return refused end

local run = open_run(run_id, clock(now))
if run.broken then return run.broken end
if not run.absent then return {'conflict', run.status, run.workflow, run.created_at} end

local foreign = foreign_key('stats', 'hash', 'workflows' .. pin, 'stream', 'index:created', 'zset', 'index:status:pending', 'zset',
  'delayed', 'zset', 'delayed:body', 'hash', 'nudge', 'stream')
if foreign then return foreign end

count('runs_created')
save_stats()
local at = run.at_text
local due = start_at ~= '' and tonumber(start_at) or run.at + tonumber(wait_ms)
append(run, 'run_created', '-', '-', workflow, created)
local row = {'status', 'pending', 'workflow', workflow, 'deployment', deployment, 'pin', pin, 'spec', spec,
  'root', root == run_id and '' or root, 'created_at', at, 'woken_at', run.length, 'replayed_to', 0, 'wake', 'start',
  'start_at', due > run.at and string.format('%.0f', due) or ''}
for i = 1, #row, 2 do
  if row[i + 1] ~= '' then set_field(run, row[i], row[i + 1]) end
end
save_run(run)
redis.call('ZADD', TAG .. 'index:created', at, run_id)
redis.call('ZADD', TAG .. 'index:status:pending', at, run_id)
local first = {kind = 'workflow', run = run_id, step = '', name = workflow, spec = spec, reason = 'start', body = message}
if due > run.at then -- in the delayed set until then, where no lease can run out
  delay(due, 'start', 'workflows' .. pin, first)
else
  publish('workflows' .. pin, first, run.at)
end
return {'created', at}
