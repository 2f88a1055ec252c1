-- redispatch_step: publishes the message of a step that lives nowhere, from what the log has, and of no other step. An
-- inline step whose owner is gone goes to the queue. The attempts that the step has made stay charged.
-- @key stats            hash: counters of the partition
-- @derived row log streams delayed dead
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg run_id
-- @arg step_id
-- @arg state            of the step, as the caller has seen it
-- @arg mode             look | mend
-- @arg name             of the step
-- @arg target           stream of its queue, without the tag
-- @arg spec             spec version of the message
-- @arg body             the message, under the id of the step
-- @arg items            pairs: stream without the tag, last entry in which the caller has looked for a message of the step
-- @returns dispatched entry | stranded | lives | changed | parked | unsure | gone status | missing | not_found | broken why
-- @include partition entry_names words arguments clock types counter stats run steps delivery msgpack messages letters entries living deployments
local now, run_id, step_id, state, mode, name, target, spec, body = unpack(ARGV, 1, 9)

local places, refused = read_places(10)
refused = refused or numbers('now?', now, 'spec', spec) or plain('run_id', run_id, 'step_id', step_id, 'name', name)
  or one_of('mode', mode, 'look', 'mend') or streams('target', target)
  or foreign_key('stats', 'hash', 'dead', 'stream', 'delayed', 'zset')
if refused then return refused end

local run = open_run(run_id, clock(now))
if run.broken then return run.broken end
if run.absent then return {'not_found'} end
if run.terminal then return {'gone', run.status} end
local step = open_step(run, step_id)
if not step then return {'missing'} end
if not step.status then return {'broken', 'the state of this step cannot be read'} end
if step.terminal or redis.call('HGET', run.row, 's:' .. step_id) ~= state then return {'changed'} end
if is_parked(run) then return {'parked'} end
if step.status == 'running' and (step.entry == '' or entry_lives(step.entry)) then return {'lives'} end
if is_delayed(run_id, step_id) or is_delayed(run_id, step.message) then return {'lives'} end
local word = behind(places, function(fields)
  return fields.run == run_id and (fields.step == step_id or holds_text(fields.msg, 'step_id', step_id)
    or (step.message ~= '' and holds_text(fields.msg, 'message_id', step.message)))
end)
if word then return {word} end
if mode == 'look' then return {'stranded'} end

target = in_place(run, target)
local foreign = foreign_key(target, 'stream')
if foreign then return foreign end
local entry = publish(target, {kind = 'step', run = run_id, step = step_id, name = name, spec = spec, reason = '', body = body}, run.at)
if step.message ~= '' then
  set_field(run, 'own:' .. step.message, false)
  step.message = ''
  save_step(run, step)
end
save_run(run)
count('steps_redispatched')
save_stats()
return {'dispatched', entry}
