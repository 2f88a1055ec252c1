-- settle_message: acknowledges and deletes a delivery, if the caller still holds it.
-- @key stats            hash: counters of the partition
-- @derived streams
-- @arg consumer
-- @arg stream           without the tag
-- @arg entry
-- @returns settled | stale
-- @include partition delivery
local consumer, stream, entry = unpack(ARGV)
local word = settle_if_held(stream, entry, consumer) and 'settled' or 'stale'
save_deliveries()
return {word}
