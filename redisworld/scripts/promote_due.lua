-- promote_due: makes due timers happen and moves due messages to their streams.
-- A wake never completes a wait; this does. Timers of finished runs are dropped; what cannot be read is buried. A message
-- whose body somebody has deleted is lost, and told: the recovery of open runs finds who waits for it.
-- @key stats            hash: counters of the partition
-- @derived row log streams delayed bodies dead
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg limit            members to promote at most
-- @returns promoted ms until the next one is due, or '' ; then per member how many ms late it was, or lost or buried and the member | broken why
-- @include partition words arguments clock types counter stats run msgpack messages wake waits
local refused = arity(2) or numbers('now?', ARGV[1], 'limit', ARGV[2])
  or foreign_key('stats', 'hash', 'dead', 'stream', 'delayed', 'zset', 'delayed:body', 'hash')
if refused then return refused end
local now, limit = clock(ARGV[1]), tonumber(ARGV[2])
local answer = {'promoted', ''}

-- What cannot be read is not dropped: it goes where people look.
local function bury_delayed(member, body, why)
  redis.call('XADD', TAG .. 'dead', '*', 'kind', 'unknown', 'reason', 'undecodable', 'detail', 'delayed member: ' .. member .. why,
    'deliveries', 0, 'stream', 'delayed', 'entry', '0-0', 'at', string.format('%.0f', now), 'original:msg', body or '')
  count('buried')
  return 'buried'
end

-- complete_wait and publish_due answer nil, or what else has become of the member.
local function complete_wait(member, run_id, wait_id)
  local run = open_run(run_id, now)
  if run.broken then return bury_delayed(member, '', ': ' .. run.broken[2]) end
  if run.absent or run.terminal or not is_waiting(wait_state(run, wait_id)) then return end
  end_wait(run, wait_id, 'completed')
  observe(run, 'timer', '', false)
end

local function publish_due(member, kind, run_id)
  local body = redis.call('HGET', TAG .. 'delayed:body', member)
  if not body then
    count('delayed_lost')
    return 'lost'
  end
  local message = read_delayed(kind, run_id, body)
  if not message then return bury_delayed(member, body, '') end
  local foreign = foreign_key(message.target, 'stream')
  if foreign then return bury_delayed(member, body, ': ' .. foreign[2]) end
  publish(message.target, message, now)
end

-- Where a wake would go, before anything is written: a wake that cannot be published would be lost.
local function foreign_wakes(due)
  for i = 1, #due, 2 do
    local run_id = string.match(due[i], '^wait (%S+) %S+$')
    local run = run_id and open_run(run_id, now)
    local foreign = run and run.pin and foreign_key('workflows' .. run.pin, 'stream')
    if foreign then return foreign end
  end
end

local due = redis.call('ZRANGE', TAG .. 'delayed', '-inf', now, 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
local foreign = foreign_wakes(due)
if foreign then return foreign end
local members = {}
for i = 1, #due, 2 do
  local member = due[i]
  members[#members + 1] = member
  local kind, run_id, id = string.match(member, '^(%S+) (%S+) (%S+)$')
  local trouble
  if kind == 'wait' then trouble = complete_wait(member, run_id, id) else trouble = publish_due(member, kind, run_id) end
  answer[#answer + 1] = trouble and {trouble, member} or string.format('%.0f', now - tonumber(due[i + 1]))
end
save_runs()
if #members > 0 then
  redis.call('ZREM', TAG .. 'delayed', unpack(members))
  redis.call('HDEL', TAG .. 'delayed:body', unpack(members))
end
save_stats()
local next_due = redis.call('ZRANGE', TAG .. 'delayed', 0, 0, 'WITHSCORES')
if next_due[2] and tonumber(next_due[2]) < math.huge then answer[2] = string.format('%.0f', math.max(0, tonumber(next_due[2]) - now)) end
return answer
