-- The usual claim: the first start of a step that waits, in a run that runs, under a delivery that is held.
local FIRST, STRIDE = 5, 12
local now, consumer, limit, retention = unpack(ARGV, 1, 4)

local is_word = judged_once('^[^%s|]+$')
local is_count = judged_once('^[1-9]%d*$')

-- run step token message stream entry attempts may_replay mode name known; the entry is looked up among those held
local function fits(i)
  local token, may_replay = ARGV[i + 2], ARGV[i + 7]
  return ARGV[i + 8] == 'bare' and ARGV[i + 10] == '1' and (may_replay == '1' or may_replay == '0') and is_queue(ARGV[i + 4])
    and is_count(ARGV[i + 6]) and is_word(ARGV[i + 9]) and token ~= '' and not string.find(token, '[%s|]')
    and (ARGV[i + 3] == ARGV[i + 1] or is_word(ARGV[i + 3]))
end

-- status|attempt|uncharged|token|message|entry|group|input|error|retry_at|started
local NEVER_STARTED = '^pending|0|0||||([^|]*|%d+|0|0|)0$'

local function held_entries(stream)
  local held = {}
  local pending = redis.pcall('XPENDING', TAG .. stream, 'workers', ARGV[FIRST + 5], ARGV[#ARGV - STRIDE + 6], MOST, consumer)
  for i = 1, #pending do held[pending[i][1]] = true end
  return held
end

-- Puts events and states into the run, and answers how many.
local function start_in(run, at, held)
  local answer = 'started 1 1 ' .. at .. ' ' .. at
  local elements, fields = {}, {'last_at', at}
  for k, i in ipairs(run.items) do
    local step, message, stream, entry = ARGV[i + 1], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
    local rest = string.match(run.states[k] or '', NEVER_STARTED)
    held[stream] = held[stream] or held_entries(stream)
    if rest and held[stream][entry] then
      elements[#elements + 1] = 'step_started ' .. step .. ' 1 ' .. at .. '\n'
      fields[#fields + 1] = 's:' .. step
      fields[#fields + 1] = 'running|1|0|' .. ARGV[i + 2] .. '|' .. (message == step and '' or message) .. '|'
        .. name_in_state(stream, entry) .. '|' .. rest .. run.length + #elements
      answers[(i - FIRST) / STRIDE + 1] = answer
    end
  end
  run.elements, run.written = elements, fields
  return #elements
end

local function start_usual(now, limit)
  local started, writes, held = 0, {}, {}
  for _, run in ipairs(usual_runs(FIRST, STRIDE, fits)) do
    if run.length + #run.items < limit then
      local count = start_in(run, string.format('%.0f', math.max(now, run.last_at)), held)
      started = started + count
      if count > 0 then writes[#writes + 1] = run end
    end
  end
  if started == 0 then return 0 end
  if type(redis.pcall('HINCRBY', TAG .. 'stats', 'claims', started)) ~= 'number' then -- OOM refuses it, and so all
    answers = {}
    return 0
  end
  redis.call('HINCRBY', TAG .. 'stats', 'steps_started', started)
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
