-- renew_leases: sets the idle time of held deliveries to 0. Owner-checked: a plain XCLAIM would steal back
-- what another worker has recovered meanwhile. JUSTID keeps the delivery count. Whose run has been cancelled is told along.
-- @key stats            hash: counters of the partition
-- @derived row streams
-- @arg consumer
-- @arg deliveries       3 arguments each: stream without the tag, entry, run, which may be a stranger's text
-- @returns renewed, then of deliveries by their numbers from 1: lost number or cancelled number | broken why
-- @include partition entry_names words arguments delivery
local consumer = ARGV[1]

local refused = whole_items(2, 3)
for i = 2, #ARGV - 2, 3 do
  refused = refused or streams('stream', ARGV[i]) or entries('entry', ARGV[i + 1])
end
if refused then return refused end
local answer = {'renewed'}
for i = 2, #ARGV, 3 do
  local stream, entry, run_id = unpack(ARGV, i, i + 2)
  local number = (i + 1) / 3
  if not holds(stream, entry, consumer) then
    answer[#answer + 1] = 'lost ' .. number
  else
    redis.call('XCLAIM', TAG .. stream, GROUP, consumer, 0, entry, 'IDLE', 0, 'JUSTID')
    if redis.pcall('HGET', row_key(run_id), 'status') == 'cancelled' then
      answer[#answer + 1] = 'cancelled ' .. number
    end
  end
end
return answer
