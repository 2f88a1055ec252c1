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
-- @include partition entry_names clock words arguments types counter stats delivery
local consumer, stream, lease, cursor, limit, ticket = unpack(ARGV)
local MOST_AGED = 1000

local refused = arity(6) or streams('stream', stream) or entries('cursor', cursor)
  or numbers('lease', lease, 'count', limit, 'ticket', ticket)
  or foreign_key('stats', 'hash', stream, 'stream', 'reclaim:' .. stream, 'string')
if refused then return refused end
redis.call('HDEL', TAG .. 'stats', '') -- first: under OOM a script may write on after an allowed write
local holder_key = TAG .. 'reclaim:' .. stream
local holder = redis.call('GET', holder_key)
local held_ms = redis.call('PTTL', holder_key) -- more than anybody asks for, where the clock of Redis has gone back since
if holder and holder ~= consumer and held_ms <= 2 * math.max(tonumber(lease), tonumber(ticket)) then return {'busy', held_ms} end

local claimed = redis.pcall('XAUTOCLAIM', TAG .. stream, GROUP, consumer, lease, cursor, 'COUNT', limit)
if claimed.err then
  redis.call('SET', holder_key, consumer, 'PX', ticket)
  if string.find(claimed.err, 'NOGROUP', 1, true) then return {'no_group'} end
  return redis.error_reply(claimed.err)
end

-- Where the clock has gone back, what was delivered later than now would look fresh until that time has come again. It ages
-- from now on, as if its consumer had renewed it, which the living do anyway.
local function age_from_now(greatest)
  local at = clock('')
  if tonumber(string.match(greatest, '^%d+')) <= at then return end
  for _, item in ipairs(redis.call('XPENDING', TAG .. stream, GROUP, string.format('%.0f', at), '+', MOST_AGED)) do
    if item[3] == 0 then redis.call('XCLAIM', TAG .. stream, GROUP, item[2], 0, item[1], 'IDLE', 0, 'JUSTID') end
  end
end

-- What comes from now on is stale in a lease at the earliest, so nobody needs to look before.
local pending = redis.call('XPENDING', TAG .. stream, GROUP)
local idle = pending[1] == 0
if not idle then age_from_now(pending[3]) end
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
