-- stage_hook: a hook is about to claim its token: the row says so first (design section 11, hook tokens).
-- Its event is written by the pass, once the token's pointer has been asked for.
-- @key stats            hash: counters of the partition
-- @derived row log hooks indexes expiring releases resumes
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg run_id
-- @arg hook_id
-- @arg token
-- @arg limit            events a log may hold
-- @arg retention        ms a finished run stays
-- @returns staged | conflict state | gone status | full age_in_ms | not_found | broken why
-- @include partition arguments clock types stats run hooks msgpack finish ceiling
local now, run_id, hook_id, token, limit, retention = unpack(ARGV)

local refused = arity(6) or plain('run_id', run_id, 'hook_id', hook_id) or words('token', token)
  or numbers('now?', now, 'limit', limit, 'retention', retention)
if refused then return refused end

local run = open_run(run_id, clock(now))
if run.broken then return run.broken end
if run.absent then return {'not_found'} end
if run.terminal then return {'gone', run.status} end
local foreign = foreign_key('run:' .. run_id .. ':hooks', 'hash')
if foreign then return foreign end
local state = hook_state(run, hook_id)
if state == 'claiming' and redis.call('HGET', hooks_key(run), hook_id) == token then return {'staged'} end
if state then return {'conflict', state} end
if at_ceiling(run, limit) then
  local answer = end_at_ceiling(run, retention)
  save_run(run)
  save_stats()
  return answer
end
redis.call('HSET', run.row, 'h:' .. hook_id, 'claiming')
redis.call('HSET', hooks_key(run), hook_id, token)
return {'staged'}
