-- stage_hook: a hook is about to claim its token: the row says so first (design section 11, hook tokens).
-- Its event is written by the pass, once the token's pointer has been asked for. An earlier run of this id may have given up a
-- hook of the same id, which nobody has released yet: where the token is the same, the pointer is this one's now.
-- @key stats            hash: counters of the partition
-- @derived row log hooks releases
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg run_id
-- @arg hook_id
-- @arg token
-- @returns staged | conflict state | gone status | not_found | broken why
-- @include partition words arguments clock types counter stats run hooks
local now, run_id, hook_id, token = unpack(ARGV)

local refused = arity(4) or plain('run_id', run_id, 'hook_id', hook_id) or words('token', token) or numbers('now?', now)
if refused then return refused end

local run = open_run(run_id, clock(now))
if run.broken then return run.broken end
if run.absent then return {'not_found'} end
if run.terminal then return {'gone', run.status} end
local foreign = foreign_key('run:' .. run_id .. ':hooks', 'hash', 'releases', 'hash')
if foreign then return foreign end
local state = hook_state(run, hook_id)
if state == 'claiming' and redis.call('HGET', hooks_key(run), hook_id) == token then return {'staged'} end
if state then return {'conflict', state} end
redis.call('HSET', run.row, 'h:' .. hook_id, 'claiming')
redis.call('HSET', hooks_key(run), hook_id, token)
local given_up = run_id .. ' ' .. hook_id
if redis.call('HGET', TAG .. 'releases', given_up) == token then redis.call('HDEL', TAG .. 'releases', given_up) end
return {'staged'}
