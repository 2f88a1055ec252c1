-- reap_expired: deletes finished runs whose retention is over: row, log and index members together.
-- @key stats            hash: counters of the partition
-- @derived row log hooks resumes indexes expiring
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg limit            runs to delete at most
-- @returns reaped count | broken why
-- @include partition arguments clock types stats
local refused = arity(2) or numbers('now?', ARGV[1], 'limit', ARGV[2])
  or foreign_key('stats', 'hash', 'expiring', 'zset', 'index:created', 'zset', 'index:status:completed', 'zset',
  'index:status:failed', 'zset', 'index:status:cancelled', 'zset')
if refused then return refused end
local now, limit = clock(ARGV[1]), ARGV[2]

local expired = redis.call('ZRANGE', TAG .. 'expiring', '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
for _, run_id in ipairs(expired) do
  local row = row_key(run_id)
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
