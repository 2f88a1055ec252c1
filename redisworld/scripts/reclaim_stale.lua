-- reclaim_stale: takes over deliveries whose lease ran out, from where the last call stopped.
-- One consumer holds the stream's ticket and sweeps; the others are told busy.
-- @key stats            hash: counters of the partition
-- @derived streams reclaim
-- @arg consumer
-- @arg stream           without the tag
-- @arg lease            ms without renewal after which a delivery is taken over
-- @arg cursor           where to go on, '0-0' at first
-- @arg count            entries to take at most
-- @arg ticket           ms the ticket is held
-- @returns reclaimed cursor, then per entry: entry deliveries fields | busy | no_group | broken why
-- @include partition arguments types stats delivery
local consumer, stream, lease, cursor, limit, ticket = unpack(ARGV)

local refused = arity(6) or streams('stream', stream) or entries('cursor', cursor)
  or numbers('lease', lease, 'count', limit, 'ticket', ticket)
  or foreign_key('stats', 'hash', stream, 'stream', 'reclaim:' .. stream, 'string')
if refused then return refused end
redis.call('HDEL', TAG .. 'stats', '') -- first: under OOM a script may write on after an allowed write
local holder_key = TAG .. 'reclaim:' .. stream
local holder = redis.call('GET', holder_key)
if holder and holder ~= consumer then return {'busy'} end
redis.call('SET', holder_key, consumer, 'PX', ticket)

local claimed = redis.pcall('XAUTOCLAIM', TAG .. stream, GROUP, consumer, lease, cursor, 'COUNT', limit)
if claimed.err then
  if string.find(claimed.err, 'NOGROUP', 1, true) then return {'no_group'} end
  return redis.error_reply(claimed.err)
end
local answer = {'reclaimed', claimed[1]}
for _, item in ipairs(claimed[2]) do
  if item and item[2] then
    local pending = redis.call('XPENDING', TAG .. stream, GROUP, item[1], item[1], 1)
    answer[#answer + 1] = {item[1], pending[1] and pending[1][4] or 1, item[2]}
    count('messages_reclaimed')
  end
end
save_stats()
return answer
