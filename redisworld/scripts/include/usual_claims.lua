-- The usual claim: the first start of a step that waits, in a run that runs, under a delivery that is held.
local FIRST, STRIDE = 5, 12
local now, consumer, limit, retention = unpack(ARGV, 1, 4)

local plain_words = judged_once('^[^%s|]+$')
local counts = judged_once('^[1-9]%d*$')

-- run step token message stream entry attempts may_replay mode name known; the entry is looked up among those held
local function fits(i)
  local token, may_replay = ARGV[i + 2], ARGV[i + 7]
  return ARGV[i + 8] == 'bare' and ARGV[i + 10] == '1' and (may_replay == '1' or may_replay == '0') and queues[ARGV[i + 4]]
    and counts[ARGV[i + 6]] and plain_words[ARGV[i + 9]] and token ~= '' and not string.find(token, '[%s|]')
    and (ARGV[i + 3] == ARGV[i + 1] or plain_words[ARGV[i + 3]])
end

-- status|attempt|uncharged|token|message|entry|group|input|error|retry_at|started
local NEVER_STARTED = '^pending|0|0||||([^|]*|%d+|0|0|)0$'

-- The entries that the consumer holds, by stream.
local held = setmetatable({}, {__index = function(held, stream)
  local entries = {}
  local pending = redis.pcall('XPENDING', TAG .. stream, GROUP, ARGV[FIRST + 5], ARGV[#ARGV - STRIDE + 6], MOST, consumer)
  for i = 1, #pending do entries[pending[i][1]] = true end
  held[stream] = entries
  return entries
end})

-- Puts events and states into the run, and answers how many.
local function start_in(run, at)
  local match, states, length = string.match, run.states, run.length
  local count, ended, answer = 0, ' 1 ' .. at .. '\n', 'started 1 1 ' .. at .. ' ' .. at
  local elements, fields = {}, {'last_at', at}
  for k, i in ipairs(run.items) do
    local step, token, message, stream, entry = unpack(ARGV, i + 1, i + 5)
    local rest = match(states[k] or '', NEVER_STARTED)
    if rest and held[stream][entry] then
      count = count + 1
      elements[count] = 'step_started ' .. step .. ended
      fields[2 * count + 1] = run.fields[2 + k]
      fields[2 * count + 2] = 'running|1|0|' .. token .. '|' .. (message == step and '' or message) .. '|'
        .. entry_name(stream, entry) .. '|' .. rest .. length + count
      answers[(i - FIRST) / STRIDE + 1] = answer
    end
  end
  run.elements, run.written = elements, fields
  return count
end

local function start_usual(now, limit)
  local started, writes = 0, {}
  for _, run in ipairs(usual_runs(FIRST, STRIDE, fits)) do
    if run.length + run.size < limit then
      local count = start_in(run, string.format('%.0f', math.max(now, run.last_at)))
      started = started + count
      if count > 0 then writes[#writes + 1] = run end
    end
  end
  if started == 0 then return 0 end
  if add('claims', started) then -- OOM refuses it, and so all
    answers = {}
    return 0
  end
  add('steps_started', started)
  for _, run in ipairs(writes) do
    redis.call('RPUSH', run.log, unpack(run.elements))
    redis.call('HSET', run.row, unpack(run.written))
  end
  return started
end

local usual = 0
if #ARGV > FIRST and math.max(#now, #limit, #retention) < 16 and string.find(now .. ' ' .. limit .. ' ' .. retention, '^%d* %d+ %d+$') then
  usual = start_usual(clock(now), tonumber(limit))
end
if usual > 0 and usual == (#ARGV - FIRST + 1) / STRIDE then return answers end
