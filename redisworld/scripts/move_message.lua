-- move_message: hands a delivery back, now or after a delay, as the message given. If the run waits for the
-- old message id, it waits for the new one.
-- @key stats            hash: counters of the partition
-- @derived run, the message's stream, target stream, delayed, nudge
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg consumer
-- @arg stream           where the delivery is pending, without the tag
-- @arg entry            its entry id
-- @arg kind             step | workflow
-- @arg run_id
-- @arg old              its message id
-- @arg id               message id from now on (for a step: its step id)
-- @arg name             step or workflow name, for people
-- @arg spec
-- @arg reason           of a workflow message, else ''
-- @arg target           stream it goes to, without the tag
-- @arg delay            ms; 0 publishes at once
-- @arg body             the message
-- @returns moved | stale
-- @include partition clock stats delivery messages
local now, consumer, stream, entry, kind, run_id, old, id, name, spec, reason, target, delay, body = unpack(ARGV)
now, delay = clock(now), tonumber(delay)

if not holds(stream, entry, consumer) then return {'stale'} end
settle(stream, entry)
if delay > 0 then
  add_delayed(now + delay, kind .. ' ' .. run_id .. ' ' .. id, target .. ' ' .. name .. ' ' .. spec .. ' ' .. reason .. '\n' .. body)
elseif kind == 'step' then
  publish_step(target, run_id, id, name, spec, body)
else
  publish_workflow(target, run_id, name, reason, spec, now, body)
end
if old ~= id and redis.call('HGET', row_key(run_id), 'wake') == old then
  redis.call('HSET', row_key(run_id), 'wake', id)
end
count('messages_moved')
save_stats()
return {'moved'}
