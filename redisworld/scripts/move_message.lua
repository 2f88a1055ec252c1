-- move_message: hands a delivery back, now or after a delay, as the message given. If the run waits for the
-- old message id, it waits for the new one. A stream of a deployment's own is that of the run's: where that is the one it
-- was read from, it stays.
-- @key stats            hash: counters of the partition
-- @derived row log streams delayed bodies nudge
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg consumer
-- @arg stream           where the delivery is pending, without the tag
-- @arg entry            its entry id
-- @arg kind             step | workflow | a kind of a newer version
-- @arg run_id
-- @arg step_id          or ''
-- @arg name             step or workflow name, for people
-- @arg spec
-- @arg reason           of a workflow message, else ''
-- @arg old              its message id
-- @arg id               message id from now on
-- @arg target           stream it goes to, without the tag
-- @arg delay            ms; 0 publishes at once
-- @arg body             the message
-- @returns moved | here | stale | broken why
-- @include partition entry_names words arguments clock types counter stats run steps delivery save messages deployments
local now, consumer, stream, entry, kind, run_id, step_id, name, spec, reason, old, id, target, wait_ms, body = unpack(ARGV)

-- The words of the message are a stranger's, perhaps: what cannot be read when it is due is buried then.
local refused = arity(15) or streams('stream', stream, 'target', target) or entries('entry', entry)
  or numbers('now?', now, 'delay', wait_ms) or (old ~= id and plain('id?', id) or nil)
if refused then return refused end
now, wait_ms = clock(now), tonumber(wait_ms)

if not holds(stream, entry, consumer) then return {'stale'} end
local place = in_place(open_run(run_id, now), target)
if place ~= target and place == stream then return {'here'} end
target = place
local foreign = foreign_key('stats', 'hash', target, 'stream', 'delayed', 'zset', 'delayed:body', 'hash', 'nudge', 'stream',
  'run:' .. run_id, 'hash', 'run:' .. run_id .. ':log', 'list')
if foreign then return foreign end
settle(stream, entry)
save_deliveries() -- first: Redis allows it under OOM
local message = {kind = kind, run = run_id, step = step_id, name = name, spec = spec, reason = reason, body = body}
if wait_ms > 0 then
  delay(now + wait_ms, id, target, message)
else
  publish(target, message, now)
end
if old ~= id then
  local run = open_run(run_id, now)
  if not run.broken and not run.absent then
    if run.wake == old then set_field(run, 'wake', id) end
    local owned = redis.call('HGET', run.row, 'own:' .. old)
    local step = owned and open_step(run, owned)
    if step and step.status then
      step.message = id
      save_step(run, step)
      set_field(run, 'own:' .. old, false)
      set_field(run, 'own:' .. id, owned)
    end
  end
end
count('messages_moved')
save_all()
return {'moved'}
