-- repin_delayed: a delayed message goes to the stream of the deployment that its run belongs to now, when it is due.
-- @key stats            hash: counters of the partition
-- @derived row log delayed bodies
-- @arg kind             step | workflow
-- @arg run_id
-- @arg id               of the message
-- @arg old              its bytes, as the caller has read them
-- @arg body             its bytes from now on
-- @returns moved target | fits | changed | broken why
-- @include partition words arguments types counter stats run messages deployments
local kind, run_id, id, old, body = unpack(ARGV)

local refused = arity(5) or one_of('kind', kind, 'step', 'workflow') or plain('run_id', run_id, 'id', id)
  or foreign_key('stats', 'hash', 'delayed', 'zset', 'delayed:body', 'hash')
if refused then return refused end
local member = kind .. ' ' .. run_id .. ' ' .. id
local run = open_run(run_id, 0)
if run.broken then return run.broken end
local stored = redis.call('HGET', TAG .. 'delayed:body', member)
local message = stored and read_delayed(kind, run_id, stored)
if not message or not redis.call('ZSCORE', TAG .. 'delayed', member) then return {'changed'} end
local target = in_place(run, message.target)
if target == message.target then return {'fits'} end
if message.body ~= old then return {'changed'} end

local header = string.sub(stored, #message.target + 1, #stored - #message.body)
redis.call('HSET', TAG .. 'delayed:body', member, target .. header .. body) -- first: OOM refuses it
count('messages_moved')
save_stats()
return {'moved', target}
