-- complete_many: records outcomes of running steps for a batch; each item is answered on its own (design section 7).
-- One item appends the event, settles the step, counts down its join group, and acknowledges the delivery
-- or makes it responsible for the run; a retry moves the same message to the delayed set. A delivery that somebody else holds
-- by now stays with him, save that of a usual completion (include/usual_completions.lua).
-- An answer may come as one text with blanks.
-- @key stats            hash: counters of the partition
-- @derived row log streams delayed bodies nudge
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg consumer
-- @arg items            14 arguments each: run, step, token, outcome completed|failed|retrying, cause error|timeout|drain,
--                       message id, stream, entry, may_replay 0|1, payload, delay in ms, target stream, step name, message
-- @returns list of: completed|failed responsible|woken|settled | retrying retry_at | stale | skipped responsible|settled
--          | gone status | invalid | missing | not_found | broken why
-- @include partition entry_names clock counter usual usual_completions words arguments types stats run steps delivery save msgpack messages wake groups deployments
local SPEC = 1

local refused = whole_items(FIRST, STRIDE) or numbers('now?', now) or foreign_key('stats', 'hash')
if refused then return refused end
now = clock(now)

-- Under OOM Redis lets a script write on when its first write was an allowed one; this call frees memory.
redis.call('HDEL', TAG .. 'stats', '')

local function retry(run, step, cause, payload, wait_ms, target, name, body)
  local drained = cause == 'drain'
  local number = append(run, 'step_retrying', step.id, step.attempt, cause, payload)
  if drained then step.uncharged = tonumber(step.uncharged) + 1 else step.error = number end
  step.status, step.message, step.entry = 'pending', '', '' -- the token stays: a lost reply is asked again
  local message = {kind = 'step', run = run.id, step = step.id, name = name, spec = SPEC, reason = '', body = body}
  if wait_ms > 0 then
    step.retry_at = string.format('%.0f', now + wait_ms)
    set_field(run, 'delays', 1) -- the reaper looks for them
    delay(now + wait_ms, step.id, target, message)
  else
    publish(target, message, now)
  end
  count(drained and 'steps_handed_back' or 'steps_retried')
  save_step(run, step)
  return {'retrying', step.retry_at}
end

local function finish(run, step, outcome, payload, message, stream, entry, may_replay)
  end_step(run, step, outcome, payload)
  if run.terminal or not step_tells(run, step, outcome == 'failed') then return 'settled' end
  return observe(run, 'step', message, may_replay and holds(stream, entry, consumer))
end

local function repeated(run, message, stream, entry)
  if continues(run, message, stream, entry, consumer) then return 'responsible' end
  -- a forgotten attempt of this worker must not take away the message that owns an inline step now
  if not owns(run, message, entry_name(stream, entry)) then settle_if_held(stream, entry, consumer) end
  return 'settled'
end

-- What nearly all completions look like; any other is looked at closely.
local PLAIN = '^[^%s|]+ [^%s|]+ [^%s|]+ completed %l* [^%s|]* steps%S* %d+%-%d+ [01]$'

local function judge(i)
  if string.find(table.concat(ARGV, ' ', i, i + 8), PLAIN) then return foreign_key(ARGV[i + 6], 'stream') end
  local outcome = ARGV[i + 3]
  local bad = plain('run', ARGV[i], 'step', ARGV[i + 1], 'token', ARGV[i + 2], 'message?', ARGV[i + 5])
    or one_of('outcome', outcome, 'completed', 'failed', 'retrying') or streams('stream', ARGV[i + 6])
    or entries('entry?', ARGV[i + 7]) or one_of('may_replay', ARGV[i + 8], '0', '1') or foreign_key(ARGV[i + 6], 'stream')
  if bad or outcome ~= 'retrying' then return bad end
  return one_of('cause', ARGV[i + 4], 'error', 'timeout', 'drain') or numbers('delay', ARGV[i + 10])
    or streams('target', ARGV[i + 11]) or plain('name', ARGV[i + 12])
end

local function complete(i)
  local bad = judge(i)
  if bad then return bad end
  local run_id, step_id, token, outcome, cause = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local message, stream, entry, may_replay = ARGV[i + 5], ARGV[i + 6], ARGV[i + 7], ARGV[i + 8] == '1'
  local run = open_run(run_id, now)
  if run.broken then return run.broken end
  if run.absent then
    settle_if_held(stream, entry, consumer)
    return {'not_found'}
  end
  local step = open_step(run, step_id)
  if not step then return run.terminal and {'gone', run.status} or {'missing'} end
  if unreadable(run, step) then return {'broken', 'the state of this step or its join group cannot be read'} end

  if step.terminal then
    local word = step.token == token and step.status or 'skipped'
    return {word, repeated(run, message, stream, entry)}
  end
  if step.status == 'pending' then
    if run.terminal then
      settle_if_held(stream, entry, consumer)
      return {'gone', run.status}
    end
    if step.token == token and outcome == 'retrying' then
      settle_if_held(stream, entry, consumer)
      return {'retrying', step.retry_at}
    end
    return {'invalid'}
  end
  if step.token ~= token then return {'stale'} end
  if run.terminal and outcome == 'retrying' then
    settle_if_held(stream, entry, consumer)
    return {'gone', run.status}
  end

  local target = outcome == 'retrying' and in_place(run, ARGV[i + 11])
  if target then
    local foreign = foreign_key(target, 'stream', 'delayed', 'zset', 'delayed:body', 'hash', 'nudge', 'stream')
    if foreign then return foreign end
  elseif not run.terminal then
    local foreign = foreign_key('workflows' .. run.pin, 'stream')
    if foreign then return foreign end
  end
  if step.message ~= '' then set_field(run, 'own:' .. step.message, false) end
  if target then
    settle_if_held(stream, entry, consumer)
    return retry(run, step, cause, ARGV[i + 9], tonumber(ARGV[i + 10]), target, ARGV[i + 12], ARGV[i + 13])
  end
  local detail = finish(run, step, outcome, ARGV[i + 9], message, stream, entry, may_replay)
  if detail ~= 'responsible' then settle_if_held(stream, entry, consumer) end
  return {outcome, detail}
end

batch.size, batch.first, batch.last = (#ARGV - FIRST + 1) / STRIDE, ARGV[FIRST + 7], ARGV[#ARGV - STRIDE + 8]
for i = FIRST, #ARGV, STRIDE do
  local k = (i - FIRST) / STRIDE + 1
  answers[k] = answers[k] or complete(i)
end
save_all()
return answers
