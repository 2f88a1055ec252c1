-- release_token: lets a pointer go that still names this hook, after a while: a resume whose reply was lost finds its
-- run through it.
-- @key stats            hash: counters of the partition
-- @derived token
-- @arg token
-- @arg run_id
-- @arg hook_id
-- @arg keep             ms until the pointer goes
-- @returns released | kept | broken why
-- @include partition words arguments types
local token, run_id, hook_id, keep = unpack(ARGV)

local refused = arity(4) or words('token', token) or plain('run_id', run_id, 'hook_id', hook_id) or numbers('keep', keep)
  or foreign_key('hook:' .. token, 'hash')
if refused then return refused end
local pointer = TAG .. 'hook:' .. token
local holder = redis.call('HMGET', pointer, 'run', 'hook')
if holder[1] ~= run_id or holder[2] ~= hook_id then return {'kept'} end
redis.call('PEXPIRE', pointer, keep)
return {'released'}
