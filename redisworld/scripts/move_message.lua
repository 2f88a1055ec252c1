-- move_message: hands a delivery back, now or after a delay, as the message given. If the run waits for the
-- old message id, it waits for the new one.
-- @key stats            hash: counters of the partition
-- @derived run, the message's stream, target stream, delayed, nudge
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
-- @returns moved | stale
-- @include partition clock stats delivery messages
local now, consumer, stream, entry, kind, run_id, step_id, name, spec, reason, old, id, target, wait_ms, body = unpack(ARGV)
now, wait_ms = clock(now), tonumber(wait_ms)

if not holds(stream, entry, consumer) then return {'stale'} end
settle(stream, entry)
save_deliveries()
local message = {kind = kind, run = run_id, step = step_id, name = name, spec = spec, reason = reason, body = body}
if wait_ms > 0 then
  delay(now + wait_ms, id, target, message)
else
  publish(target, message, now)
end
if old ~= id and redis.call('HGET', row_key(run_id), 'wake') == old then
  redis.call('HSET', row_key(run_id), 'wake', id)
end
count('messages_moved')
save_stats()
return {'moved'}
