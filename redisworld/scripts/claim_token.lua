-- claim_token: points a hook token at a hook, in the token's partition: a compare-and-set.
-- @key stats            hash: counters of the partition
-- @derived token
-- @arg token
-- @arg run_id
-- @arg hook_id
-- @arg dead_run         the holder that the caller has found dead, or ''
-- @arg dead_hook
-- @returns claimed | held run hook | broken why
-- @include partition words arguments types
local token, run_id, hook_id, dead_run, dead_hook = unpack(ARGV)

local refused = arity(5) or words('token', token) or plain('run_id', run_id, 'hook_id', hook_id, 'dead_run?', dead_run,
  'dead_hook?', dead_hook) or foreign_key('hook:' .. token, 'hash')
if refused then return refused end
local pointer = TAG .. 'hook:' .. token
local holder = redis.call('HMGET', pointer, 'run', 'hook')
if holder[1] == run_id and holder[2] == hook_id then
  redis.call('PERSIST', pointer)
  return {'claimed'}
end
if holder[1] and not (holder[1] == dead_run and holder[2] == dead_hook) then return {'held', holder[1], holder[2]} end
redis.call('HSET', pointer, 'run', run_id, 'hook', hook_id)
if holder[1] and holder[1] ~= run_id then redis.call('HSET', pointer, 'was', holder[1]) end
redis.call('PERSIST', pointer)
return {'claimed'}
