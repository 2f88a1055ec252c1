-- load_run: what a replay needs, read at one moment: the row's fixed fields and the log from where it stands.
-- Starts a pending run. A message that nothing waits for is settled.
-- @key stats            hash: counters of the partition
-- @derived row log hooks streams indexes expiring releases resumes
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg consumer
-- @arg run_id
-- @arg message          id of the message that asks
-- @arg stream           its stream, without the tag
-- @arg entry            its entry id
-- @arg from             log elements the caller holds already
-- @arg count            elements to return at most
-- @arg bytes            bytes to return at most; one element always comes
-- @arg limit            events a log may hold
-- @arg retention        ms a finished run stays
-- @returns loaded fields length owned elements | settled | gone status | full age_in_ms | not_found | broken why
-- @include partition entry_names words arguments clock types counter stats run hooks delivery save msgpack retention finish ceiling
local now, consumer, run_id, message, stream, entry, from, count_most, bytes, limit, retention = unpack(ARGV)

local refused = arity(11) or plain('run_id', run_id, 'message', message) or streams('stream', stream) or entries('entry', entry)
  or numbers('now?', now, 'from', from, 'count', count_most, 'bytes', bytes, 'limit', limit, 'retention', retention)
if refused then return refused end

local run = open_run(run_id, clock(now))
if run.broken then return run.broken end
if run.absent then return {'not_found'} end

local foreign = foreign_key('stats', 'hash', 'index:status:pending', 'zset', 'index:status:running', 'zset')
if foreign then return foreign end
local owned = redis.call('HGET', run.row, 'own:' .. message) or ''
if run.terminal then
  settle_if_held(stream, entry, consumer)
  save_deliveries()
  return {'gone', run.status}
end
if run.wake ~= message and owned == '' then
  if run.wake ~= '' or run.woken_at <= run.replayed_to then
    settle_if_held(stream, entry, consumer)
    save_deliveries()
    return {'settled'}
  end
  if not holds(stream, entry, consumer) then return {'settled'} end
  set_field(run, 'wake', message)
end
if at_ceiling(run, limit) then
  local answer = end_at_ceiling(run, retention)
  if answer[1] == 'broken' then return answer end
  settle_if_held(stream, entry, consumer)
  save_all()
  return answer
end
if run.status == 'pending' then start_run_now(run) end
save_all()

local first = tonumber(from)
local elements = redis.call('LRANGE', run.log, first, first + tonumber(count_most) - 1)
local size, left = 0, tonumber(bytes)
for i = 1, #elements do
  size = size + #elements[i]
  if size > left and i > 1 then
    for j = #elements, i, -1 do elements[j] = nil end
    break
  end
end
local fields = redis.call('HMGET', run.row, 'workflow', 'deployment', 'spec', 'root', 'created_at', 'started_at',
  'woken_at', 'replayed_to', 'begun_to', 'patches')
return {'loaded', fields, run.length, owned, elements}
