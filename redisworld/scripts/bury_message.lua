-- bury_message: moves a delivery to the dead letters with its original fields, and fails its run if told to.
-- @key stats            hash: counters of the partition
-- @derived row log hooks streams dead indexes expiring releases resumes
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg consumer
-- @arg stream           without the tag
-- @arg entry
-- @arg kind             step | workflow | unknown
-- @arg run_id           or ''
-- @arg reason           a word: undecodable, max_deliveries, unknown_name, unknown_run, step_missing, newer_spec
-- @arg detail           a sentence for people
-- @arg deliveries
-- @arg code             failure code of the run, or '' to leave it open
-- @arg payload          of run_failed
-- @arg retention        ms a finished run stays
-- @returns buried id of the letter | stale | broken why
-- @include partition arguments clock types stats run hooks delivery save finish
local now, consumer, stream, entry, kind, run_id, reason, detail, deliveries, code, payload, retention = unpack(ARGV)

local refused = arity(12) or streams('stream', stream) or entries('entry', entry) or plain('run_id?', run_id, 'code?', code)
  or one_of('kind', kind, 'step', 'workflow', 'unknown')
  or numbers('now?', now, 'deliveries', deliveries, 'retention', retention)
if refused then return refused end
now = clock(now)

if not holds(stream, entry, consumer) then return {'stale'} end
local foreign = foreign_key('stats', 'hash', 'dead', 'stream')
if foreign then return foreign end
local run = run_id ~= '' and code ~= '' and open_run(run_id, now)
local ends = run and not run.broken and not run.absent and not run.terminal
if ends then foreign = foreign_end(run, 'failed') end
if foreign then return foreign end
local letter = {'kind', kind, 'reason', reason, 'detail', detail, 'deliveries', deliveries, 'stream', stream, 'entry', entry,
  'at', string.format('%.0f', now)}
local original = redis.call('XRANGE', TAG .. stream, entry, entry)[1]
for i, text in ipairs(original and original[2] or {}) do
  letter[#letter + 1] = i % 2 == 1 and 'original:' .. text or text
end
settle(stream, entry)
save_deliveries()
local id = redis.call('XADD', TAG .. 'dead', '*', unpack(letter))
count('buried')
if ends then finish_run(run, 'failed', code, payload, tonumber(retention)) end
save_all()
return {'buried', id}
