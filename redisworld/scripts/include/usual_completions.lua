-- The usual completion: the result of the running attempt, under its own token and delivery, in a run that runs, while
-- other steps of its join group are open: so that the body sees nothing.
local FIRST, STRIDE = 3, 14
local now, consumer = unpack(ARGV, 1, 2)

-- run step token outcome cause message stream entry may_replay
local USUAL = '^[^%s|]+ [^%s|]+ [^%s|]+ completed  [^%s|]+ steps%S* %d+%-%d+ [01]$'
-- status|attempt|uncharged|token|message|entry|group|input|error|retry_at|started
local RUNNING = '^running|(%d+)|(%d+)|([^|]*)||([^|]+)|([^|]+)|(%d+)|(%d+)|0|(%d+)$'
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
    local attempt, uncharged, token, named, group, input, err, started = string.match(run.states[k] or '', RUNNING)
    settled[stream] = settled[stream] or {fits = redis.call('TYPE', TAG .. stream).ok == 'stream'}
    if token == ARGV[i + 2] and step == ARGV[i + 5] and named == name_in_state(stream, entry) and settled[stream].fits
      and count_down(run, group) then
      elements[#elements + 1] = 'step_completed ' .. step .. ' ' .. attempt .. ' ' .. at .. '\n' .. ARGV[i + 9]
      fields[#fields + 1] = 's:' .. step
      fields[#fields + 1] = 'completed|' .. attempt .. '|' .. uncharged .. '|' .. token .. '|||' .. group .. '|' .. input
        .. '|' .. err .. '|0|' .. started
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
  for _, run in ipairs(usual_runs(FIRST, STRIDE, USUAL, 9)) do
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
