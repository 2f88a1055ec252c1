-- cancel_run: asks the body to stop (it gets CancelledError and may clean up), or ends the run at once.
-- A run whose first message still waits in the delayed set has no body to ask: it ends at once, and the message goes.
-- @key stats            hash: counters of the partition
-- @derived row log hooks streams indexes expiring releases resumes delayed bodies
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg run_id
-- @arg mode             request | terminate
-- @arg reason           payload
-- @arg retention        ms a finished run stays
-- @returns requested status | cancelled | conflict status | not_found | broken why
-- @include partition words arguments clock types counter stats run hooks msgpack messages wake retention finish
local now, run_id, mode, reason, retention = unpack(ARGV)

local refused = arity(5) or plain('run_id', run_id) or one_of('mode', mode, 'request', 'terminate')
  or numbers('now?', now, 'retention', retention) or foreign_key('stats', 'hash')
if refused then return refused end
-- Under OOM Redis lets a script write on when its first write was an allowed one; a cancelled run frees memory.
redis.call('HDEL', TAG .. 'stats', '')
local run = open_run(run_id, clock(now))
if run.broken then return run.broken end
if run.absent then return {'not_found'} end
if run.terminal then
  if mode == 'terminate' and run.status == 'cancelled' then return {'cancelled'} end
  return {'conflict', run.status}
end
local foreign = foreign_key('workflows' .. run.pin, 'stream', 'delayed', 'zset', 'delayed:body', 'hash')
  or foreign_end(run, 'cancelled')
if foreign then return foreign end
if drop_first_message(run) then mode = 'terminate' end -- nobody to ask: no body has begun
if mode == 'terminate' then
  finish_run(run, 'cancelled', '', reason, tonumber(retention))
elseif redis.call('HEXISTS', run.row, 'cancel_requested') == 0 then
  set_field(run, 'cancel_requested', append(run, 'cancel_requested', '-', '-', '', reason))
  observe(run, 'admin', '', false)
end
save_run(run)
save_stats()
return {mode == 'terminate' and 'cancelled' or 'requested', run.status}
