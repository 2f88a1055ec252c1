-- remove_consumer: removes a consumer that holds nothing. Both in one script: XGROUP DELCONSUMER drops
-- pending entries with the consumer.
-- @key stats            hash: counters of the partition
-- @derived streams
-- @arg consumer         the one to remove
-- @arg stream           without the tag
-- @returns removed | holding | no_group | broken why
-- @include partition entry_names words arguments delivery
local consumer, stream = unpack(ARGV)

local refused = arity(2) or streams('stream', stream)
if refused then return refused end
local pending = redis.pcall('XPENDING', TAG .. stream, GROUP, '-', '+', 1, consumer)
if pending.err then return {'no_group'} end
if #pending > 0 then return {'holding'} end
redis.call('XGROUP', 'DELCONSUMER', TAG .. stream, GROUP, consumer)
return {'removed'}
