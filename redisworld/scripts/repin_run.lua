-- repin_run: gives an open run to another deployment, or to none. From now on its wakes go there, and so does what a pass
-- or a body sends that is under way. Messages that wait already stay where they are: the caller moves them after this.
-- @key stats            hash: counters of the partition
-- @derived row log
-- @arg run_id
-- @arg old              its deployment, as the caller has seen it
-- @arg deployment       its deployment from now on, or '' for none: any worker may take it then
-- @returns moved | fits | changed deployment | gone status | not_found | broken why
-- @include partition words arguments types counter stats run
local run_id, old, deployment = unpack(ARGV)

local refused = arity(3) or plain('run_id', run_id, 'old?', old, 'deployment?', deployment) or foreign_key('stats', 'hash')
if refused then return refused end
local run = open_run(run_id, 0)
if run.broken then return run.broken end
if run.absent then return {'not_found'} end
if run.terminal then return {'gone', run.status} end
local now_its = redis.call('HGET', run.row, 'deployment') or ''
if now_its == deployment then return {'fits'} end
if now_its ~= old then return {'changed', now_its} end

set_field(run, 'moved_from', old ~= '' and old)
set_field(run, 'deployment', deployment ~= '' and deployment)
if run.pin ~= '' or deployment == '' then set_field(run, 'pin', deployment ~= '' and '@' .. deployment) end
save_run(run) -- first: OOM refuses it, and with it the whole call
count('runs_moved')
save_stats()
return {'moved'}
