-- The compact state of a step: status|attempt|uncharged|token|message|entry|group|input|error|retry_at|started
local STATE = '^(%a+)|(%d+)|(%d+)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|(%d+)|(%d+)|(%d+)|(%d+)$'

-- Reads the states of many steps at once, for open_step.
local function read_states(run, step_ids)
  for first = 1, #step_ids, CHUNK do
    local names = {}
    for i = first, math.min(first + CHUNK - 1, #step_ids) do names[#names + 1] = 's:' .. step_ids[i] end
    for i, state in ipairs(redis.call('HMGET', run.row, unpack(names))) do run.states[names[i]] = state end
  end
end

-- Numbers that are only passed on stay text: Lua's conversions cost more than the rest of a step.
local function open_step(run, step_id)
  local step, field = run.steps[step_id], 's:' .. step_id
  if step ~= nil then return step end
  step = false
  local state = run.fields[field] or run.states[field]
  if state == nil then state = redis.call('HGET', run.row, field) end
  if state then
    local status, attempt, uncharged, token, message, entry, group, input, err, retry_at, started = string.match(state, STATE)
    step = {id = step_id, status = status, attempt = tonumber(attempt), uncharged = uncharged, token = token,
      message = message, entry = entry, group = group, input = input, error = err,
      retry_at = retry_at, started = started, started_now = false, terminal = status == 'completed' or status == 'failed'}
  end
  run.steps[step_id] = step
  return step
end

-- A step that waits for its first start. input is the number of its step_created.
local function create_state(run, step_id, group, input)
  set_field(run, 's:' .. step_id, 'pending|0|0||||' .. group .. '|' .. input .. '|0|0|0')
  run.steps[step_id] = nil
  count('steps_created')
end

-- Attempts that used up the retry budget.
local function charged(step)
  if step.uncharged == '0' then return step.attempt end
  return step.attempt - tonumber(step.uncharged)
end

local function save_step(run, step)
  set_field(run, 's:' .. step.id, step.status .. '|' .. step.attempt .. '|' .. step.uncharged .. '|' .. step.token .. '|'
    .. step.message .. '|' .. step.entry .. '|' .. step.group .. '|' .. step.input .. '|' .. step.error .. '|'
    .. step.retry_at .. '|' .. step.started)
end

local STREAMS = {[''] = 'steps', ['/w'] = 'workflows'}

-- The entry id and the stream of an entry's name.
local function entry_of(name)
  local entry, rest = string.match(name, '^([^/]*)(.*)$')
  return entry, STREAMS[rest] or string.sub(rest, 2)
end

-- Whether this very delivery owns an inline step; a copy of its message does not.
local function owns(run, message, name)
  local owned = redis.call('HGET', run.row, 'own:' .. message)
  local step = owned and open_step(run, owned)
  return step and step.entry == name
end

-- The step starts: the caller has checked that it may.
local function start_step(run, step, token, message, entry)
  step.status = 'running'
  step.attempt = step.attempt + 1
  step.token = token
  step.message = message == step.id and '' or message
  step.entry = entry
  step.retry_at = '0'
  local number = append(run, 'step_started', step.id, step.attempt, '', '')
  if step.started == '0' then step.started, step.started_now = number, true end
  save_step(run, step)
  count('steps_started')
end

-- The running attempt has ended: completed or failed.
local function end_step(run, step, outcome, payload)
  append(run, 'step_' .. outcome, step.id, step.attempt, '', payload)
  step.status, step.terminal, step.entry, step.message, step.retry_at = outcome, true, '', '', '0'
  count('steps_' .. outcome)
  save_step(run, step)
end

-- The element of the log with this number, as header and payload.
local function read_element(run, number)
  number = tonumber(number) or 0
  local there = number >= 1 and number <= run.length and number % 1 == 0
  local element = there and (run.elements[number - run.stored] or redis.call('LINDEX', run.log, number - 1)) or ''
  local line = string.find(element, '\n', 1, true) or #element + 1
  return string.sub(element, 1, line - 1), string.sub(element, line + 1)
end
