-- reap_expired: deletes finished runs whose retention is over: row, log, outputs, index members and what it had delayed.
-- A row of many fields takes several calls: until it is searched, its field reaping tells the next one where to go on.
-- Nobody may reap for days, and a row goes by its TTL: a run that has begun anew under its id since then stays.
-- @key stats            hash: counters of the partition
-- @derived row log hooks resumes outs outputs indexes expiring delayed bodies
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg limit            runs to delete at most
-- @returns reaped count more | broken why: more is 1 where there may be more to do within the limit: a row is not searched
--          to its end yet, or runs that have begun anew took the places of others
-- @include partition words arguments clock types counter stats outputs
local refused = arity(2) or numbers('now?', ARGV[1], 'limit', ARGV[2])
  or foreign_key('stats', 'hash', 'expiring', 'zset', 'index:created', 'zset', 'index:status:completed', 'zset',
  'index:status:failed', 'zset', 'index:status:cancelled', 'zset', 'delayed', 'zset', 'delayed:body', 'hash')
if refused then return refused end
local now, limit = clock(ARGV[1]), ARGV[2]

redis.call('HDEL', TAG .. 'stats', '') -- first: under OOM a script may write on after an allowed write

local PAGE, MOST_FIELDS = 250, 1000 -- so many fields are searched, and what they name forgotten, below 3 ms
local left = MOST_FIELDS

local function forget(members)
  if #members == 0 then return end
  redis.call('ZREM', TAG .. 'delayed', unpack(members))
  redis.call('HDEL', TAG .. 'delayed:body', unpack(members))
end

local function forget_page(run_id, fields)
  local members = {}
  for i = 1, #fields, 2 do
    local kind, id = string.match(fields[i], '^([ws]):(.+)$')
    local word = string.match(fields[i + 1], '^(%a+)|')
    local member = (kind == 'w' and word == 'waiting' and 'wait ') or (kind == 's' and word == 'pending' and 'step ')
    if member then members[#members + 1] = member .. run_id .. ' ' .. id end
    if #members == PAGE then
      forget(members)
      members = {}
    end
  end
  forget(members)
end

-- Timers and retries that a run did not live to see may be due in months, and a retry would find no run then. False
-- where the row has more fields than this call may search.
local function drop_delayed(run_id, reaping)
  local row = row_key(run_id)
  local cursor = string.match(reaping or '', '^%d+$') or '0'
  repeat
    if left <= 0 then
      redis.call('HSET', row, 'reaping', cursor)
      return false
    end
    local page = redis.call('HSCAN', row, cursor, 'COUNT', PAGE)
    cursor, left = page[1], left - 1 - #page[2] / 2
    forget_page(run_id, page[2])
  until cursor == '0'
  return true
end

local function drop_from_listings(run_id, ...)
  for _, index in ipairs({...}) do redis.call('ZREM', TAG .. 'index:' .. index, run_id) end
  redis.call('ZREM', TAG .. 'expiring', run_id)
end

local expired = redis.call('ZRANGE', TAG .. 'expiring', '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
local reaped, more = 0, 0
for _, run_id in ipairs(expired) do
  local row = row_key(run_id)
  local read = redis.pcall('HMGET', row, 'status', 'delays', 'reaping') -- a key of another type has none, and goes, too
  if read[1] == 'pending' or read[1] == 'running' then -- begun anew: these members are of the run before it
    drop_from_listings(run_id, 'status:completed', 'status:failed', 'status:cancelled')
    more = 1
  else
    if read[2] and not drop_delayed(run_id, read[3]) then
      more = 1
      break
    end
    delete_outputs(row)
    redis.call('UNLINK', row, log_key(run_id), row .. ':hooks', row .. ':resumes')
    drop_from_listings(run_id, 'created', 'status:completed', 'status:failed', 'status:cancelled')
    reaped = reaped + 1
  end
end
if reaped > 0 then
  count('runs_reaped', reaped)
  save_stats()
end
return {'reaped', reaped, more}
