-- reap_expired: deletes finished runs whose retention is over: row, log, outputs, index members and what it had delayed.
-- @key stats            hash: counters of the partition
-- @derived row log hooks resumes outs outputs indexes expiring delayed bodies
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg limit            runs to delete at most
-- @returns reaped count | broken why
-- @include partition words arguments clock types stats
local refused = arity(2) or numbers('now?', ARGV[1], 'limit', ARGV[2])
  or foreign_key('stats', 'hash', 'expiring', 'zset', 'index:created', 'zset', 'index:status:completed', 'zset',
  'index:status:failed', 'zset', 'index:status:cancelled', 'zset', 'delayed', 'zset', 'delayed:body', 'hash')
if refused then return refused end
local now, limit = clock(ARGV[1]), ARGV[2]

-- Timers and retries that a run did not live to see may be due in months, and a retry would find no run then.
local function drop_delayed(run_id)
  local row, cursor = row_key(run_id), '0'
  if redis.pcall('HEXISTS', row, 'delays') ~= 1 then return end -- a key of another type goes, too
  repeat
    local page = redis.call('HSCAN', row, cursor, 'COUNT', 1000)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local kind, id = string.match(page[2][i], '^([ws]):(.+)$')
      local word = string.match(page[2][i + 1], '^(%a+)|')
      local member = (kind == 'w' and word == 'waiting' and 'wait ') or (kind == 's' and word == 'pending' and 'step ')
      if member then
        redis.call('ZREM', TAG .. 'delayed', member .. run_id .. ' ' .. id)
        redis.call('HDEL', TAG .. 'delayed:body', member .. run_id .. ' ' .. id)
      end
    end
  until cursor == '0'
end

-- A foreign key in the place of their names lists none of ours.
local function delete_outputs(row)
  local names = redis.pcall('HGET', row .. ':outs', 'names')
  if type(names) == 'string' then
    for name in string.gmatch(names, '%S+') do redis.call('UNLINK', row .. ':out:' .. name) end
  end
  redis.call('UNLINK', row .. ':outs')
end

local expired = redis.call('ZRANGE', TAG .. 'expiring', '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
for _, run_id in ipairs(expired) do
  local row = row_key(run_id)
  drop_delayed(run_id)
  delete_outputs(row)
  redis.call('UNLINK', row, log_key(run_id), row .. ':hooks', row .. ':resumes')
  for _, index in ipairs({'created', 'status:completed', 'status:failed', 'status:cancelled'}) do
    redis.call('ZREM', TAG .. 'index:' .. index, run_id)
  end
  redis.call('ZREM', TAG .. 'expiring', run_id)
end
if #expired > 0 then
  count('runs_reaped', #expired)
  save_stats()
end
return {'reaped', #expired}
