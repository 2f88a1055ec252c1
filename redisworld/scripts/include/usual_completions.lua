-- The usual completion: the result of the first attempt, under its own token and delivery, in a run that runs, while
-- other steps of its join group are open: so that the body sees nothing.
local FIRST, STRIDE = 3, 14
local now, consumer = unpack(ARGV, 1, 2)

-- run step token outcome cause message stream entry may_replay; token and entry must be those of the state
local function fits(i)
  local may_replay = ARGV[i + 8]
  return ARGV[i + 3] == 'completed' and ARGV[i + 4] == '' and ARGV[i + 5] == ARGV[i + 1] and (may_replay == '1' or may_replay == '0')
    and is_queue(ARGV[i + 6])
end

-- What follows the entry in a state: group|input|error|retry_at|started
local AFTER_ENTRY = '^([^|]+)|%d+|%d+|0|%d+$'
local COUNTED = '^(%d+)(|[%a_]+|%d|%d)$'

-- Takes one from what is left of a join group. False where the body may see that.
local function count_down(run, id)
  if id == '-' then return true end
  local group = run.groups[id]
  if not group then
    local left, rest = string.match(redis.call('HGET', run.row, 'g:' .. id) or '', COUNTED)
    group = {left = tonumber(left) or 0, rest = rest}
    run.groups[id] = group
  end
  if group.left <= 1 then return false end
  group.left = group.left - 1
  return true
end

-- Puts events and states into the run and entries into the settled ones, and answers how many.
local function complete_in(run, at, settled)
  local elements, fields = {}, {'last_at', at}
  run.groups = {}
  for k, i in ipairs(run.items) do
    local step, stream, entry = ARGV[i + 1], ARGV[i + 6], ARGV[i + 7]
    -- status|attempt|uncharged|token|message|entry: the first attempt
    local begin = 'running|1|0|' .. ARGV[i + 2] .. '||' .. name_in_state(stream, entry) .. '|'
    local state = run.states[k] or ''
    local rest = string.sub(state, 1, #begin) == begin and string.sub(state, #begin + 1) or ''
    local group = string.match(rest, AFTER_ENTRY)
    settled[stream] = settled[stream] or {fits = redis.call('TYPE', TAG .. stream).ok == 'stream'}
    if group and settled[stream].fits and count_down(run, group) then
      elements[#elements + 1] = 'step_completed ' .. step .. ' 1 ' .. at .. '\n' .. ARGV[i + 9]
      fields[#fields + 1] = 's:' .. step
      fields[#fields + 1] = 'completed|1|0|' .. ARGV[i + 2] .. '|||' .. rest
      table.insert(settled[stream], entry)
      answers[(i - FIRST) / STRIDE + 1] = 'completed settled'
    end
  end
  local count = #elements
  for id, group in pairs(run.groups) do
    fields[#fields + 1] = 'g:' .. id
    fields[#fields + 1] = group.left .. (group.rest or '')
  end
  run.elements, run.written = elements, fields
  return count
end

local function complete_usual(now)
  local completed, writes, settled = 0, {}, {}
  for _, run in ipairs(usual_runs(FIRST, STRIDE, fits)) do
    local count = complete_in(run, string.format('%.0f', math.max(now, run.last_at)), settled)
    completed = completed + count
    if count > 0 then writes[#writes + 1] = run end
  end
  for stream, entries in pairs(settled) do -- first: OOM allows these, and then all that follows
    if #entries > 0 then
      redis.call('XACK', TAG .. stream, 'workers', unpack(entries))
      redis.call('XDEL', TAG .. stream, unpack(entries))
    end
  end
  for _, run in ipairs(writes) do
    redis.call('RPUSH', run.log, unpack(run.elements))
    redis.call('HSET', run.row, unpack(run.written))
  end
  if completed > 0 then redis.call('HINCRBY', TAG .. 'stats', 'steps_completed', completed) end
  return completed
end

local usual = 0
if #ARGV > FIRST and #now < 16 and string.find(now, '^%d*$') then usual = complete_usual(clock(now)) end
if usual > 0 and usual == (#ARGV - FIRST + 1) / STRIDE then return answers end
