-- mend_delayed: brings one member of the delayed set together again with what belongs to it: a timer with its wait, a
-- message with its body. No script of ours parts them; a person's DEL or ZREM does.
-- @key stats            hash: counters of the partition
-- @derived row log delayed bodies nudge
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg mode             look | mend
-- @arg kind             wait | step | workflow
-- @arg run_id
-- @arg id               of the wait or the message
-- @returns fits | restored|dropped | broken why
-- @include partition words arguments clock types counter stats run messages waits
local now, mode, kind, run_id, id = unpack(ARGV)

local refused = arity(5) or numbers('now?', now) or one_of('mode', mode, 'look', 'mend')
  or one_of('kind', kind, 'wait', 'step', 'workflow') or plain('run_id', run_id, 'id', id)
  or foreign_key('stats', 'hash', 'delayed', 'zset', 'delayed:body', 'hash', 'nudge', 'stream')
if refused then return refused end
now = clock(now)
local run = open_run(run_id, now)
if run.broken then return run.broken end
local member = kind .. ' ' .. run_id .. ' ' .. id
local open = not run.absent and not run.terminal
local delayed = redis.call('ZSCORE', TAG .. 'delayed', member)
local body = kind ~= 'wait' and redis.call('HEXISTS', TAG .. 'delayed:body', member) == 1

local function answer(word, mend)
  if mode == 'mend' then
    mend()
    count('delayed_mended')
    save_stats()
  end
  return {word}
end

if kind == 'wait' then
  local due = open and not delayed and string.match(wait_state(run, id) or '', '^waiting|(%d+)$')
  if not due then return {'fits'} end -- the timer of a run that has ended goes when it is due
  return answer('restored', function() add_delayed(tonumber(due), member) end)
end
if (delayed and body) or (not delayed and not body) then return {'fits'} end
if delayed then -- its message is lost, and the run recovered without it
  return answer('dropped', function() redis.call('ZREM', TAG .. 'delayed', member) end)
end
if open then -- a delayed start is due when the row says; of all others nobody knows: now
  local begins = id == 'start' and run.status == 'pending' and number_in(redis.call('HGET', run.row, 'start_at'))
  return answer('restored', function() add_delayed(begins or now, member) end)
end
return answer('dropped', function() redis.call('HDEL', TAG .. 'delayed:body', member) end)
