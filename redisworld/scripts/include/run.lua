-- A run as this call sees it. Rows are read once, changed in memory, and written by save_run:
-- so nothing is half done when a check fails, and a batch pays for its run once.
local opened = {}

local function open_run(run_id, now)
  local run = opened[run_id]
  if run then return run end
  run = {id = run_id, row = row_key(run_id), log = log_key(run_id), fields = {}, names = {}, elements = {}, steps = {}, states = {}, groups = {}}
  local read = redis.pcall('HMGET', run.row, 'status', 'last_at', 'wake', 'woken_at', 'replayed_to', 'workflow', 'pin', 'created_at')
  local length = redis.pcall('LLEN', run.log)
  local refused = read.err or (type(length) == 'table' and length.err)
  if refused and not string.find(refused, 'WRONGTYPE', 1, true) then redis.call('HMGET', run.row, 'status') end -- raises
  if refused then
    run.broken = foreign_key('run:' .. run_id, 'hash', 'run:' .. run_id .. ':log', 'list')
  elseif not read[1] then
    run.absent = true
  else
    run.status = read[1]
    run.wake = read[3] or ''
    run.woken_at = number_in(read[4]) or 0
    run.replayed_to = number_in(read[5]) or 0
    run.workflow = read[6] or ''
    run.pin = read[7] or ''
    run.created_at = number_in(read[8]) and read[8] or nil -- a score of the listings
    run.terminal = run.status == 'completed' or run.status == 'failed' or run.status == 'cancelled'
  end
  run.stored, run.length = length, length
  run.last_at = number_in(read[2]) or 0
  run.at = math.max(now, run.last_at) -- an event's time is never below the last one's
  run.at_text = string.format('%.0f', run.at)
  opened[run_id] = run
  return run
end

-- What to answer where the log of a run is there and its row is not, as after a DEL of the row alone: what came behind that log
-- would be replayed from the old beginning.
local function without_row(run)
  if run.absent and run.stored > 0 then
    return {'broken', 'run ' .. run.id .. ' has a log and no row, which somebody has deleted: DEL ' .. run.log .. ' as well, then'
      .. ' a run may begin under this id'}
  end
end

-- false takes the field away. Fields are written in the order they were set: people read the row.
local function set_field(run, field, value)
  if run.fields[field] == nil then run.names[#run.names + 1] = field end
  run.fields[field] = value
end

-- Adds an element to the log and answers its number, from 1.
local function append(run, kind, id, attempt, detail, payload)
  local length = run.length + 1
  if detail ~= '' then detail = ' ' .. detail end
  run.elements[length - run.stored] = kind .. ' ' .. id .. ' ' .. attempt .. ' ' .. run.at_text .. detail .. '\n' .. payload
  run.length = length
  return length
end

local CHUNK = 2000 -- arguments per command, well below Lua's limit for unpack

local function push_all(command, key, values)
  for first = 1, #values, CHUNK do
    redis.call(command, key, unpack(values, first, math.min(first + CHUNK - 1, #values)))
  end
end

local function save_run(run)
  for id, group in pairs(run.groups) do
    if group.changed then set_field(run, 'g:' .. id, group.left .. '|' .. group.mode .. '|' .. group.sealed .. '|' .. group.failed) end
  end
  if #run.elements > 0 then
    set_field(run, 'last_at', run.at_text)
    push_all('RPUSH', run.log, run.elements)
  end
  local set, gone = {}, {}
  for _, field in ipairs(run.names) do
    local value = run.fields[field]
    if value == false then
      gone[#gone + 1] = field
    else
      set[#set + 1] = field
      set[#set + 1] = value
    end
  end
  if #set > 0 then push_all('HSET', run.row, set) end
  if #gone > 0 then push_all('HDEL', run.row, gone) end
  if run.expire_ms then -- it has ended in this call: whoever waits for it is told
    redis.call('PEXPIRE', run.row, run.expire_ms)
    redis.call('PEXPIRE', run.log, run.expire_ms)
    redis.call('PEXPIRE', run.row .. ':resumes', run.expire_ms)
    redis.call('PUBLISH', TAG .. 'ended', run.id)
  end
end

local function save_runs()
  for _, run in pairs(opened) do
    if not run.broken and not run.absent then save_run(run) end
  end
end
