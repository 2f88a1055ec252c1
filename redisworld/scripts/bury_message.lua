-- bury_message: moves a delivery to the dead letters with its original fields. Its run fails, if told to; or it is
-- parked, where it waits for this very message.
-- @key stats            hash: counters of the partition
-- @derived row log hooks streams dead indexes expiring releases resumes
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg consumer
-- @arg stream           without the tag
-- @arg entry
-- @arg kind             step | workflow | unknown
-- @arg run_id           or ''
-- @arg reason           a word: undecodable, max_deliveries, unknown_name, not_found, missing, newer_spec, deployment_mismatch, broken
-- @arg detail           a sentence for people
-- @arg deliveries
-- @arg code             failure code of the run, or '' to leave it open
-- @arg payload          of run_failed
-- @arg retention        ms a finished run stays
-- @returns buried id of the letter | stale | broken why
-- @include partition entry_names words arguments clock types counter stats run hooks delivery save retention finish letters
-- Fields and values of an entry that become fields of the letter, below Lua's limit for unpack; what a stranger wrote
-- beyond them is kept in the letter's field rest, as netstrings.
local MOST_TEXTS = 4000
local now, consumer, stream, entry, kind, run_id, reason, detail, deliveries, code, payload, retention = unpack(ARGV)

local refused = arity(12) or streams('stream', stream) or entries('entry', entry) or plain('run_id?', run_id, 'code?', code)
  or one_of('kind', kind, 'step', 'workflow', 'unknown')
  or numbers('now?', now, 'deliveries', deliveries, 'retention', retention)
if refused then return refused end
now = clock(now)

if not holds(stream, entry, consumer) then return {'stale'} end
local foreign = foreign_key('stats', 'hash', 'dead', 'stream')
if foreign then return foreign end
local run = run_id ~= '' and (code ~= '' or PARKS[reason]) and open_run(run_id, now)
local open = run and not run.broken and not run.absent and not run.terminal
local ends = open and code ~= ''
if ends then foreign = foreign_end(run, 'failed') end
if foreign then return foreign end
local letter = {'kind', kind, 'reason', reason, 'detail', detail, 'deliveries', deliveries, 'stream', stream, 'entry', entry,
  'at', string.format('%.0f', now)}
local original = redis.call('XRANGE', TAG .. stream, entry, entry)[1]
local rest = {}
for i, text in ipairs(original and original[2] or {}) do
  if i > MOST_TEXTS then
    rest[#rest + 1] = #text .. ':' .. text .. ','
  else
    letter[#letter + 1] = i % 2 == 1 and 'original:' .. text or text
  end
end
if #rest > 0 then
  letter[#letter + 1] = 'rest'
  letter[#letter + 1] = table.concat(rest)
end
settle(stream, entry)
save_deliveries()
local id = redis.call('XADD', TAG .. 'dead', '*', unpack(letter))
count('buried')
if ends then finish_run(run, 'failed', code, payload, tonumber(retention)) elseif open then park(run, id) end
save_all()
return {'buried', id}
