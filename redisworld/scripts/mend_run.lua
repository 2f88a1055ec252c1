-- mend_run: brings a run and the listings together again, and takes the TTL from the keys of an open one.
-- @key stats            hash: counters of the partition
-- @derived row log hooks resumes indexes expiring
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg mode             look | mend
-- @arg run_id
-- @arg retention        ms a finished run stays
-- @returns fits | absent|unlisted|listed_wrong|expires | broken why
-- @include partition words arguments clock types counter stats run
local now, mode, run_id, retention = unpack(ARGV)
local STATUSES = {'pending', 'running', 'completed', 'failed', 'cancelled'}

local refused = arity(4) or numbers('now?', now, 'retention', retention) or one_of('mode', mode, 'look', 'mend')
  or plain('run_id', run_id) or foreign_key('stats', 'hash', 'index:created', 'zset', 'expiring', 'zset')
for _, status in ipairs(STATUSES) do refused = refused or foreign_key('index:status:' .. status, 'zset') end
refused = refused or foreign_key('run:' .. run_id .. ':hooks', 'hash', 'run:' .. run_id .. ':resumes', 'hash')
if refused then return refused end
local run = open_run(run_id, clock(now))
if run.broken then return run.broken end
if run.absent and run.stored > 0 and redis.call('PTTL', run.log) < 0 then return without_row(run) end -- else it goes by itself

-- Where it is listed, and where it should be.
local wrong = {}
local function should(index, listed, score)
  local found = redis.call('ZSCORE', TAG .. index, run_id)
  if listed and not found then wrong[#wrong + 1] = {'ZADD', TAG .. index, score, run_id} end
  if found and not listed then wrong[#wrong + 1] = {'ZREM', TAG .. index, run_id} end
  return found
end
local lives = not run.absent
local created = tonumber(run.created_at) or run.last_at
local word = should('index:created', lives, created) and 'listed_wrong' or 'unlisted'
for _, status in ipairs(STATUSES) do should('index:status:' .. status, lives and run.status == status, created) end
should('expiring', lives and run.terminal, run.at + tonumber(retention))

local expiring = {}
if lives and not run.terminal then
  for _, key in ipairs({run.row, run.log, run.row .. ':hooks', run.row .. ':resumes'}) do
    if redis.call('PTTL', key) >= 0 then expiring[#expiring + 1] = key end
  end
end
if #wrong == 0 and #expiring == 0 then return {'fits'} end
if mode == 'mend' then
  for _, command in ipairs(wrong) do redis.call(unpack(command)) end
  for _, key in ipairs(expiring) do redis.call('PERSIST', key) end
  count('runs_mended')
  save_stats()
end
if run.absent then return {'absent'} end
return {#wrong > 0 and word or 'expires'}
