-- settle_message: acknowledges and deletes a delivery, if the caller still holds it.
-- @key stats            hash: counters of the partition
-- @derived streams
-- @arg consumer
-- @arg stream           without the tag
-- @arg entry
-- @returns settled | stale | broken why
-- @include partition entry_names words arguments delivery
local consumer, stream, entry = unpack(ARGV)

local refused = arity(3) or streams('stream', stream) or entries('entry', entry)
if refused then return refused end
local word = settle_if_held(stream, entry, consumer) and 'settled' or 'stale'
save_deliveries()
return {word}
