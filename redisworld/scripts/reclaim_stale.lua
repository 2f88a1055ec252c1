-- reclaim_stale: takes over deliveries whose lease ran out, from where the last call stopped.
-- One consumer holds the stream's ticket and sweeps; the others are told busy.
-- @key stats            hash: counters of the partition
-- @derived streams reclaim
-- @arg consumer
-- @arg stream           without the tag
-- @arg lease            ms without renewal after which a delivery is taken over
-- @arg cursor           where to go on, '0-0' at first
-- @arg count            entries to take at most
-- @arg ticket           ms the ticket is held; as long as the lease where nothing is pending
-- @returns reclaimed cursor quiet_ms, then per entry: entry deliveries fields | busy ms | no_group | broken why
-- @include partition entry_names words arguments types counter stats delivery
local consumer, stream, lease, cursor, limit, ticket = unpack(ARGV)

local refused = arity(6) or streams('stream', stream) or entries('cursor', cursor)
  or numbers('lease', lease, 'count', limit, 'ticket', ticket)
  or foreign_key('stats', 'hash', stream, 'stream', 'reclaim:' .. stream, 'string')
if refused then return refused end
redis.call('HDEL', TAG .. 'stats', '') -- first: under OOM a script may write on after an allowed write
local holder_key = TAG .. 'reclaim:' .. stream
local holder = redis.call('GET', holder_key)
if holder and holder ~= consumer then return {'busy', redis.call('PTTL', holder_key)} end

local claimed = redis.pcall('XAUTOCLAIM', TAG .. stream, GROUP, consumer, lease, cursor, 'COUNT', limit)
if claimed.err then
  redis.call('SET', holder_key, consumer, 'PX', ticket)
  if string.find(claimed.err, 'NOGROUP', 1, true) then return {'no_group'} end
  return redis.error_reply(claimed.err)
end
-- What comes from now on is stale in a lease at the earliest, so nobody needs to look before.
local idle = redis.call('XPENDING', TAG .. stream, GROUP)[1] == 0
local quiet = idle and tonumber(lease) or 0
redis.call('SET', holder_key, consumer, 'PX', math.max(tonumber(ticket), quiet))
local answer = {'reclaimed', claimed[1], quiet}
for _, item in ipairs(claimed[2]) do
  if item and item[2] then
    local pending = redis.call('XPENDING', TAG .. stream, GROUP, item[1], item[1], 1)
    answer[#answer + 1] = {item[1], pending[1] and pending[1][4] or 1, item[2]}
    count('messages_reclaimed')
  end
end
save_stats()
return answer
