-- redrive_letter: sends a dead letter's message again and deletes the letter, in one call. A finished run is not
-- continued by it. The caller has read the letter; the message comes back as new, under the id it had. The row names
-- the last letter in its field redriven, so that a repeat whose reply was lost is answered as before.
-- @key stats            hash: counters of the partition
-- @derived row log streams dead
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg letter           its id
-- @arg run_id
-- @arg kind             step | workflow | a kind of a newer version
-- @arg step_id          or ''
-- @arg name             step or workflow name, for people
-- @arg spec
-- @arg reason           of a workflow message, else ''
-- @arg at               when the message was first published, in ms
-- @arg target           stream it goes to, without the tag
-- @arg body             the message
-- @returns redriven entry | no_letter | gone status | not_found | broken why
-- @include partition words arguments clock types counter stats run messages letters deployments
local now, letter, run_id, kind, step_id, name, spec, reason, at, target, body = unpack(ARGV)

-- The words of the message are a stranger's, perhaps: whoever reads it judges them.
local refused = arity(11) or entries('letter', letter) or plain('run_id', run_id) or streams('target', target)
  or numbers('now?', now, 'at', at) or foreign_key('stats', 'hash', 'dead', 'stream')
if refused then return refused end

local run = open_run(run_id, clock(now))
if run.broken then return run.broken end
if not has_letter(letter) then
  local last = not run.absent and redis.call('HGET', run.row, 'redriven')
  local name, entry = string.match(last or '', '^(%S+) (%S+)$')
  if name == letter then return {'redriven', entry} end
  return {'no_letter'}
end
if run.absent then return {'not_found'} end
if run.terminal then return {'gone', run.status} end
if is_of_earlier_run(run, letter) then
  return {'broken', 'this letter is of an earlier run ' .. run_id .. ', which is gone: drop it, the run of this id has begun anew'}
end
target = in_place(run, target)
local foreign = foreign_key(target, 'stream')
if foreign then return foreign end
local message = {kind = kind, run = run_id, step = step_id, name = name, spec = spec, reason = reason, body = body}
local entry = publish(target, message, tonumber(at)) -- first: OOM refuses it, and with it the whole call
redis.call('XDEL', TAG .. 'dead', letter)
unpark(run, letter)
set_field(run, 'redriven', letter .. ' ' .. entry)
count('redriven')
save_run(run)
save_stats()
return {'redriven', entry}
