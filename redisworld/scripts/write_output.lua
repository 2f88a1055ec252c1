-- write_output: adds the chunks of one call to an output stream of a run, and closes it where asked to.
-- Only an attempt that is running writes, and only while the run is open: whoever reads to the end of an ended run has
-- read all. A repeat is known by the index of its first chunk; an earlier attempt of the step is stale.
-- Field names of the hash beside the streams: names | s:<name> count|closed_by|closed_attempt | w:<name>:<step> attempt|next
-- @key stats            hash: the partition
-- @derived row log outs outputs
-- @arg run_id
-- @arg name             of the output stream
-- @arg step             id of the step that writes
-- @arg attempt          of that step, from 1
-- @arg token            its claim token, or '' for a step of another run
-- @arg index            of the first chunk within what the attempt writes to this stream, from 0
-- @arg length           chunks the stream keeps; the oldest go
-- @arg close            0|1
-- @arg count            chunks in this call
-- @arg chunks           so many payloads
-- @returns written | closed step | gone status | stale | invalid what | not_found | broken why
-- @include partition entry_names words arguments types run steps
local run_id, name, step_id, attempt, token, index, length, close, count = unpack(ARGV, 1, 9)
local FIXED, MOST_NAMES = 9, 64

if #ARGV < FIXED then return {'broken', 'takes ' .. FIXED .. ' arguments at least, not ' .. #ARGV} end
local refused = plain('run_id', run_id, 'name', name, 'step', step_id, 'token?', token) or one_of('close', close, '0', '1')
  or numbers('attempt', attempt, 'index', index, 'length', length, 'count', count)
refused = refused or arity(FIXED + tonumber(count))
if refused then return refused end

local run = open_run(run_id, 0)
if run.broken then return run.broken end
if run.absent then return {'not_found'} end
local outs, short = run.row .. ':outs', 'run:' .. run_id .. ':out:' .. name
refused = foreign_key('run:' .. run_id .. ':outs', 'hash', short, 'stream')
if refused then return refused end
if run.terminal then return {'gone', run.status} end
if token ~= '' then
  local step = open_step(run, step_id)
  if not step or step.status ~= 'running' or step.token ~= token then return {'stale'} end
end

local writer = 'w:' .. name .. ':' .. step_id
local read = redis.call('HMGET', outs, 'names', 's:' .. name, writer)
local names, written, closed_by, closed_attempt = read[1] or '', string.match(read[2] or '0||0', '^(%d+)|([^|]*)|(%d+)$')
local last_attempt, next_index = string.match(read[3] or '0|0', '^(%d+)|(%d+)$')
if not written or not last_attempt then return {'broken', 'the state of output stream ' .. name .. ' cannot be read'} end
attempt, index, count = tonumber(attempt), tonumber(index), tonumber(count)
last_attempt, next_index, closed_attempt = tonumber(last_attempt), tonumber(next_index), tonumber(closed_attempt)

if attempt < last_attempt then return {'stale'} end
local repeated = count > 0 and attempt == last_attempt and index < next_index
local closed = closed_by ~= '' and not (closed_by == step_id and attempt > closed_attempt)
if closed and (close == '1' or repeated) then return {'written'} end
if closed then return {'closed', closed_by} end
if repeated and close == '0' then return {'written'} end
if not read[2] then
  local _, many = string.gsub(names, '%S+', '')
  if many >= MOST_NAMES then return {'invalid', 'the run would have more than ' .. MOST_NAMES .. ' output streams'} end
  names = names == '' and name or names .. ' ' .. name
end

local stream = TAG .. short
if not repeated then
  for i = 1, count do
    written = string.format('%.0f', written + 1)
    redis.call('XADD', stream, 'MAXLEN', length, '*', 'number', written, 'step', step_id, 'attempt', attempt,
      'index', string.format('%.0f', index + i - 1), 'msg', ARGV[FIXED + i])
  end
end
if close == '1' then
  redis.call('XADD', stream, '*', 'closed', step_id, 'attempt', attempt)
  closed_by, closed_attempt = step_id, attempt
else
  closed_by, closed_attempt = '', 0 -- a later attempt of the step that closed it goes on
end
redis.call('HSET', outs, 'names', names, 's:' .. name, written .. '|' .. closed_by .. '|' .. closed_attempt,
  writer, attempt .. '|' .. string.format('%.0f', math.max(index + count, attempt == last_attempt and next_index or 0)))
return {'written'}
