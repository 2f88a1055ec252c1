-- How a run starts and ends: its row, the listings, and the day it goes.
local function set_status(run, status)
  redis.call('ZADD', TAG .. 'index:status:' .. status, run.created_at or 0, run.id) -- first: OOM refuses it
  redis.call('ZREM', TAG .. 'index:status:' .. run.status, run.id)
  run.status = status
  set_field(run, 'status', status)
end

-- pending -> running. A row that says pending although its run has started is a stale one: the event and the
-- original time stay. at is the time the body has seen already, where it has.
local function start_run_now(run, at)
  set_status(run, 'running')
  if redis.call('HEXISTS', run.row, 'started_at') == 1 then return end
  count('runs_started')
  if at then
    run.at_text = string.format('%.0f', at)
    run.at = math.max(run.at, at)
  end
  append(run, 'run_started', '-', '-', '', '')
  set_field(run, 'started_at', run.at_text)
  run.at_text = string.format('%.0f', run.at)
end

-- The first message of a run that has not begun may wait in the delayed set. Left there it would come when the row has
-- gone, and create the run again. Answers whether it was there.
local function drop_first_message(run)
  if run.status ~= 'pending' then return false end
  local first = 'workflow ' .. run.id .. ' ' .. run.wake
  redis.call('HDEL', TAG .. 'delayed:body', first)
  return redis.call('ZREM', TAG .. 'delayed', first) == 1
end

-- What the end of a run touches, checked before the first write.
local function foreign_end(run, status)
  return foreign_key('stats', 'hash', 'expiring', 'zset', 'index:status:' .. run.status, 'zset',
    'index:status:' .. status, 'zset', 'releases', 'hash', 'run:' .. run.id .. ':hooks', 'hash')
end

local function finish_run(run, status, code, payload, retention_ms)
  local kind = 'run_' .. status
  local number = append(run, kind, '-', '-', code, payload)
  set_status(run, status)
  run.terminal = true
  set_field(run, 'finished_at', run.at_text)
  set_field(run, 'finished_event', number)
  if code ~= '' then set_field(run, 'code', code) end
  run.wake = ''
  -- nobody continues it: what is kept for days is kept small
  for _, field in ipairs({'wake', 'woken_at', 'replayed_to', 'begun_to'}) do set_field(run, field, false) end
  run.expire_ms = retention_ms + BACKSTOP_MS
  redis.call('ZADD', TAG .. 'expiring', run.at + retention_ms, run.id)
  release_hooks(run)
  count('runs_' .. status)
end
