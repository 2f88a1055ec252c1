-- drop_letter: deletes a dead letter. The run that waited for it is parked no longer: recovery may send again what
-- its log has.
-- @key stats            hash: counters of the partition
-- @derived row log dead
-- @arg letter           its id
-- @arg run_id           whose message it holds, or ''
-- @returns dropped | no_letter | broken why
-- @include partition words arguments types counter stats run letters
local letter, run_id = unpack(ARGV)

local refused = arity(2) or entries('letter', letter) or plain('run_id?', run_id) or foreign_key('stats', 'hash', 'dead', 'stream')
if refused then return refused end

if not has_letter(letter) then return {'no_letter'} end
redis.call('XDEL', TAG .. 'dead', letter) -- first: Redis allows it under OOM
local run = run_id ~= '' and open_run(run_id, 0)
if run and not run.broken and not run.absent then
  unpark(run, letter)
  save_run(run)
end
count('dropped')
save_stats()
return {'dropped'}
