-- claim_many: fences and writes step_started for a batch; each item is answered on its own (design section 7).
-- Deliveries that have nothing to start are settled here. An answer may come as one text with blanks.
-- @key stats            hash: counters of the partition
-- @derived row log hooks streams indexes expiring releases resumes
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg consumer
-- @arg limit            events a log may hold
-- @arg retention        ms a finished run stays
-- @arg items            12 arguments each: run, step, token, message id, stream, entry, attempts allowed,
--                       may_replay 0|1, mode bare|ensure|owned, step name, input known to the caller 0|1, input
-- @returns list of: started attempt charged first_started_at at input | skipped responsible|owned|settled step | gone status
--          | missing | stale | full age_in_ms
--          | exhausted responsible|woken|settled | too_early ms | not_found | broken why
-- @include partition entry_names clock counter usual usual_claims words arguments types stats run steps hooks delivery entries save msgpack
-- @include messages wake groups retention finish ceiling
local refused = whole_items(FIRST, STRIDE) or numbers('now?', now, 'limit', limit, 'retention', retention)
  or foreign_key('stats', 'hash')
if refused then return refused end
now = clock(now)

local function first_start(run, step)
  if step.started_now then return run.at_text end
  return string.match(read_element(run, step.started), '^%S+ %S+ %S+ (%d+)') or run.at_text
end

-- False where the caller knows it, nil where the log does not have it: it was deleted, and others have written since.
local function input_of(run, step, known)
  if known == '1' then return false end
  local header, input = read_element(run, step.input)
  if string.find(header, 'step_created ' .. step.id .. ' ', 1, true) == 1 then return input end
end

local function no_input(step)
  return {'broken', 'the log does not have the input of step ' .. step.id .. ' where its state says'}
end

local function started(run, step, input)
  if input == nil then return no_input(step) end
  if input then return {'started', step.attempt, charged(step), first_start(run, step), run.at_text, input} end
  return table.concat({'started', step.attempt, charged(step), first_start(run, step), run.at_text}, ' ')
end

-- The step runs: whether somebody else may be running it. The caller holds its own delivery. Another entry of the
-- message that the state names is a duplicate, unless the first one is gone.
local function held_elsewhere(step, message, name)
  if name == '' or (step.message == '' and step.id or step.message) ~= message then return true end
  return step.entry ~= name and entry_lives(step.entry)
end

local function exhaust(run, step, name, allowed, message, may_take)
  local header, last = '', ''
  if step.error ~= '0' then header, last = read_element(run, step.error) end
  local retrying = 'step_retrying ' .. step.id .. ' '
  local reported = string.find(header, retrying .. step.attempt .. ' ', 1, true) == 1 -- fewer attempts are allowed since
  local text = 'step ' .. name .. ' has used up its ' .. allowed .. (allowed == 1 and ' attempt' or ' attempts')
  if not reported then text = text .. ' without reporting an outcome' end
  local error = {pack_text('type'), pack_text('AttemptsExhausted'), pack_text('message'), pack_text(text)}
  if last ~= '' and string.find(header, retrying, 1, true) == 1 then
    error[#error + 1] = pack_text('cause')
    error[#error + 1] = last
  end
  if step.message ~= '' then set_field(run, 'own:' .. step.message, false) end
  step.status, step.terminal, step.message, step.entry, step.retry_at = 'failed', true, '', '', '0'
  append(run, 'step_failed', step.id, step.attempt, '', pack_map(error))
  count('steps_failed')
  save_step(run, step)
  if not step_tells(run, step, true) then return 'settled' end
  return observe(run, 'step', message, may_take)
end

-- What nearly all claims look like; any other is looked at closely.
local PLAIN = '^[^%s|]+ [^%s|]+ [^%s|]+ [^%s|]+ steps%S* %d+%-%d+ %d+ [01] bare [^%s|]+ [01]$'

local function judge(i)
  if string.find(table.concat(ARGV, ' ', i, i + 10), PLAIN) then return foreign_key(ARGV[i + 4], 'stream') end
  return plain('run', ARGV[i], 'step', ARGV[i + 1], 'token', ARGV[i + 2], 'message', ARGV[i + 3], 'name', ARGV[i + 9])
    or streams('stream', ARGV[i + 4]) or entries('entry?', ARGV[i + 5]) or numbers('attempts', ARGV[i + 6])
    or one_of('may_replay', ARGV[i + 7], '0', '1') or one_of('mode', ARGV[i + 8], 'bare', 'ensure', 'owned')
    or one_of('known', ARGV[i + 10], '0', '1') or foreign_key(ARGV[i + 4], 'stream')
end

local function claim(i)
  local bad = judge(i)
  if bad then return bad end
  local run_id, step_id, token, message, stream, entry = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  local allowed, may_replay, mode, name, known = tonumber(ARGV[i + 6]), ARGV[i + 7] == '1', ARGV[i + 8], ARGV[i + 9], ARGV[i + 10]
  local run = open_run(run_id, now)
  if run.broken then return run.broken end
  if run.absent then return {'not_found'} end
  local step = open_step(run, step_id)
  if step and unreadable(run, step) then return {'broken', 'the state of this step cannot be read'} end

  if step and step.terminal then
    local owned = redis.call('HGET', run.row, 'own:' .. message)
    if owned then return {'skipped', 'owned', owned} end
    if continues(run, message, stream, entry, consumer) then return {'skipped', 'responsible', ''} end
    settle_if_held(stream, entry, consumer)
    return {'skipped', 'settled', ''}
  end
  if run.terminal then
    settle_if_held(stream, entry, consumer)
    return {'gone', run.status}
  end
  -- the step has gone to the queue since the caller learnt that its message owns it
  if mode == 'owned' and redis.call('HGET', run.row, 'own:' .. message) ~= step_id then
    if run.wake ~= message then settle_if_held(stream, entry, consumer) end
    return {'stale'}
  end
  if not step and mode ~= 'ensure' then return {'missing'} end
  if step and step.status == 'running' and step.token == token then return started(run, step, input_of(run, step, known)) end
  if at_ceiling(run, limit) then
    local answer = end_at_ceiling(run, retention)
    if answer[1] == 'full' then settle_if_held(stream, entry, consumer) end
    return answer
  end
  -- a caller without a delivery is a foreign producer; it starts what nobody has
  if entry ~= '' and not holds(stream, entry, consumer) then return {'stale'} end
  local name_of_entry = entry_name(stream, entry)
  if not step then
    create_state(run, step_id, '', append(run, 'step_created', step_id, '-', name, ARGV[i + 11]))
    step = open_step(run, step_id)
  end
  if step.status == 'running' and held_elsewhere(step, message, name_of_entry) then
    settle_if_held(stream, entry, consumer)
    return {'stale'}
  end
  if charged(step) >= allowed then
    local foreign = foreign_key('workflows' .. run.pin, 'stream')
    if foreign then return foreign end
    local outcome = exhaust(run, step, name, allowed, message, may_replay and holds(stream, entry, consumer))
    if outcome ~= 'responsible' then settle_if_held(stream, entry, consumer) end
    return {'exhausted', outcome}
  end
  local wait_ms = step.retry_at == '0' and 0 or tonumber(step.retry_at) - now
  if wait_ms > 0 then return {'too_early', string.format('%.0f', wait_ms)} end
  local input = input_of(run, step, known)
  if input == nil then return no_input(step) end
  start_step(run, step, token, message, name_of_entry)
  return started(run, step, input)
end

batch.size, batch.first, batch.last = (#ARGV - FIRST + 1) / STRIDE, ARGV[FIRST + 5], ARGV[#ARGV - STRIDE + 6]
must_add('claims', batch.size - usual) -- first: OOM refuses it, and with it the whole call
for i = FIRST, #ARGV, STRIDE do
  local k = (i - FIRST) / STRIDE + 1
  answers[k] = answers[k] or claim(i)
end
save_all()
return answers
