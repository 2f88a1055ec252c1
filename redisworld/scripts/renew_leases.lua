-- renew_leases: sets the idle time of held deliveries to 0. Owner-checked: a plain XCLAIM would steal back
-- what another worker has recovered meanwhile. JUSTID keeps the delivery count.
-- @key stats            hash: counters of the partition
-- @derived streams
-- @arg consumer
-- @arg deliveries       pairs: stream without the tag, entry
-- @returns renewed, then each entry that the consumer holds no more | broken why
-- @include partition words arguments delivery
local consumer = ARGV[1]

local refused = whole_items(2, 2)
for i = 2, #ARGV - 1, 2 do refused = refused or streams('stream', ARGV[i]) or entries('entry', ARGV[i + 1]) end
if refused then return refused end
local answer = {'renewed'}
for i = 2, #ARGV, 2 do
  if holds(ARGV[i], ARGV[i + 1], consumer) then
    redis.call('XCLAIM', TAG .. ARGV[i], GROUP, consumer, 0, ARGV[i + 1], 'IDLE', 0, 'JUSTID')
  else
    answer[#answer + 1] = ARGV[i + 1]
  end
end
return answer
