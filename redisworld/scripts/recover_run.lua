-- recover_run: sends a recovery wake to a run whose wake names no living message, and to no other. The old message, if
-- it comes back from somewhere, finds that the row names another one and is settled: nobody is responsible twice. The
-- wake of a delayed start comes when the run is to begin, not before.
-- @key stats            hash: counters of the partition
-- @derived row log streams delayed bodies nudge dead
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg run_id
-- @arg wake             message id that the row names, or ''
-- @arg mode             look | mend
-- @arg items            pairs: stream without the tag, last entry in which the caller has looked for that message
-- @returns recovered wake | stranded | lives | changed | parked | unsure | gone status | not_found | broken why
-- @include partition entry_names words arguments clock types counter stats run steps delivery msgpack messages wake letters living
local now, run_id, wake, mode = unpack(ARGV, 1, 4)

local places, refused = read_places(5)
refused = refused or numbers('now?', now) or plain('run_id', run_id, 'wake?', wake) or one_of('mode', mode, 'look', 'mend')
  or foreign_key('stats', 'hash', 'dead', 'stream', 'delayed', 'zset', 'delayed:body', 'hash', 'nudge', 'stream')
if refused then return refused end

local run = open_run(run_id, clock(now))
if run.broken then return run.broken end
if run.absent then return {'not_found'} end
if run.terminal then return {'gone', run.status} end
if run.wake ~= wake or run.woken_at <= run.replayed_to then return {'changed'} end
if is_parked(run) then return {'parked'} end
if wake ~= '' then
  if is_delayed(run_id, wake) then return {'lives'} end
  local word = behind(places, function(fields) return fields.run == run_id and holds_text(fields.msg, 'message_id', wake) end)
  if word then return {word} end
end
if mode == 'look' then return {'stranded'} end
local foreign = foreign_key('workflows' .. run.pin, 'stream')
if foreign then return foreign end

-- another id than the lost one, which may be a recovery wake itself, of the same length of the log
local length, again = string.match(wake, '^w(%d+)r(%d+)$')
again = tonumber(length) == run.length and tonumber(again) + 1 or 1
local begins = run.status == 'pending' and number_in(redis.call('HGET', run.row, 'start_at'))
local due = begins and begins > run.at and begins or nil
publish_wake(run, 'recovery', 'w' .. run.length .. 'r' .. string.format('%.0f', again), due)
save_run(run)
count('runs_recovered')
save_stats()
return {'recovered', run.wake}
