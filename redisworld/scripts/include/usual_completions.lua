-- The usual completion: the result of the first attempt, under the token and the entry that its state names, in a run that
-- runs, while other steps of its join group are open: so that the body sees nothing.
-- It settles that entry without a look at who holds it, and is the only command that does. The state says that this attempt is
-- the one that counts: whoever took the entry over has not claimed it, or the token were his. His claim finds the step ended
-- and answers skipped, which is all that he could do with the entry; and so a usual item costs no XPENDING.
local FIRST, STRIDE = 3, 14
local now, consumer = unpack(ARGV, 1, 2)

-- run step token outcome cause message stream entry may_replay; token and entry must be those of the state
local function fits(i)
  local may_replay = ARGV[i + 8]
  return ARGV[i + 3] == 'completed' and ARGV[i + 4] == '' and ARGV[i + 5] == ARGV[i + 1] and (may_replay == '1' or may_replay == '0')
    and queues[ARGV[i + 6]]
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

-- The entries that are settled, by stream; false where there is none.
local settled = setmetatable({}, {__index = function(settled, stream)
  settled[stream] = redis.call('TYPE', TAG .. stream).ok == 'stream' and {}
  return settled[stream]
end})

-- Puts events and states into the run and entries into the settled ones, and answers how many.
local function complete_in(run, at)
  local find, match, sub, states = string.find, string.match, string.sub, run.states
  local count, ended = 0, ' 1 ' .. at .. '\n'
  local elements, fields = {}, {'last_at', at}
  run.groups = {}
  for k, i in ipairs(run.items) do
    local step, token, stream, entry = ARGV[i + 1], ARGV[i + 2], ARGV[i + 6], ARGV[i + 7]
    -- status|attempt|uncharged|token|message|entry: the first attempt
    local begin = 'running|1|0|' .. token .. '||' .. entry_name(stream, entry) .. '|'
    local state = states[k] or ''
    local group = find(state, begin, 1, true) == 1 and match(state, AFTER_ENTRY, #begin + 1)
    local entries = group and settled[stream]
    if entries and count_down(run, group) then
      count = count + 1
      elements[count] = 'step_completed ' .. step .. ended .. ARGV[i + 9]
      fields[2 * count + 1] = run.fields[2 + k]
      fields[2 * count + 2] = 'completed|1|0|' .. token .. '|||' .. sub(state, #begin + 1)
      entries[#entries + 1] = entry
      answers[(i - FIRST) / STRIDE + 1] = 'completed settled'
    end
  end
  for id, group in pairs(run.groups) do
    fields[#fields + 1] = 'g:' .. id
    fields[#fields + 1] = group.left .. (group.rest or '')
  end
  run.elements, run.written = elements, fields
  return count
end

local function complete_usual(now)
  local completed, writes = 0, {}
  local stats = redis.call('TYPE', TAG .. 'stats').ok
  if stats ~= 'hash' and stats ~= 'none' then return 0 end
  for _, run in ipairs(usual_runs(FIRST, STRIDE, fits)) do
    local count = complete_in(run, string.format('%.0f', math.max(now, run.last_at)))
    completed = completed + count
    if count > 0 then writes[#writes + 1] = run end
  end
  for stream, entries in pairs(settled) do -- first: OOM allows these, and then all that follows
    if entries and #entries > 0 then
      redis.call('XACK', TAG .. stream, GROUP, unpack(entries))
      redis.call('XDEL', TAG .. stream, unpack(entries))
    end
  end
  for _, run in ipairs(writes) do
    redis.call('RPUSH', run.log, unpack(run.elements))
    redis.call('HSET', run.row, unpack(run.written))
  end
  if completed > 0 then add('steps_completed', completed) end
  return completed
end

local usual = 0
if #ARGV > FIRST and #now < 16 and string.find(now, '^%d*$') then usual = complete_usual(clock(now)) end
if usual > 0 and usual == (#ARGV - FIRST + 1) / STRIDE then return answers end
