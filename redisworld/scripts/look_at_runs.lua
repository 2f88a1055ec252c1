-- look_at_runs: which of these open runs wait for something that may be lost: a wake, a step, a timer. Only what
-- one look at the row and the delayed set can tell: who asks has to look through the streams for the rest.
-- A row is read in parts, from a cursor on: 0 begins, and a run that is not through is told as more, with the cursor to
-- ask again from. With a ticket one consumer looks and the others are told busy.
-- What is wake, step, wait, more (id is the cursor) or broken (state says why).
-- @key stats            hash: counters of the partition
-- @derived row log streams delayed reclaim
-- @arg consumer
-- @arg ticket           ms the ticket is held; 0 looks without one
-- @arg most             fields that are read in one call, about
-- @arg items            pairs: run id, cursor of its row
-- @returns looked, then per suspect: run what id state | busy | broken why
-- @include partition entry_names words arguments clock types counter stats run steps delivery msgpack entries living
local consumer, ticket, most = unpack(ARGV, 1, 3)

local refused = whole_items(4, 2) or numbers('ticket', ticket, 'most', most)
  or foreign_key('stats', 'hash', 'delayed', 'zset', 'reclaim:runs', 'string')
for i = 4, #ARGV, 2 do refused = refused or plain('run', ARGV[i]) or numbers('cursor', ARGV[i + 1]) end
if refused then return refused end
if tonumber(ticket) > 0 then
  redis.call('HDEL', TAG .. 'stats', '') -- first: under OOM a script may write on after an allowed write
  local holder = redis.call('GET', TAG .. 'reclaim:runs')
  if holder and holder ~= consumer then return {'busy'} end
  redis.call('SET', TAG .. 'reclaim:runs', consumer, 'PX', ticket)
end

local answer = {'looked'}
local function suspect(run, what, id, state) answer[#answer + 1] = {run.id, what, id, state} end

local STATE = '^(%a+)|%d+|%d+|[^|]*|([^|]*)|([^|]*)|[^|]*|%d+|%d+|%d+|%d+$'

local function look_at_step(run, id, state)
  local status, message, entry = string.match(state, STATE)
  if not status then return suspect(run, 'broken', id, state) end
  if status == 'completed' or status == 'failed' then return end
  if status == 'running' and (entry == '' or entry_lives(entry)) then return end -- '': a foreign runtime's
  if is_delayed(run.id, id) or is_delayed(run.id, message) then return end
  suspect(run, 'step', id, state)
end

local function look_at_wait(run, id, state)
  if string.find(state, '^waiting|') and not redis.call('ZSCORE', TAG .. 'delayed', 'wait ' .. run.id .. ' ' .. id) then
    suspect(run, 'wait', id, state)
  end
end

local LOOKS = {['s:'] = look_at_step, ['w:'] = look_at_wait}
local left = tonumber(most)

for i = 4, #ARGV, 2 do
  local run, cursor = open_run(ARGV[i], 0), ARGV[i + 1]
  if run.broken then
    suspect(run, 'broken', '', run.broken[2])
  elseif not run.absent and not run.terminal then
    if cursor == '0' and run.woken_at > run.replayed_to and not is_delayed(run.id, run.wake) then
      suspect(run, 'wake', run.wake, run.woken_at .. ' ' .. run.replayed_to)
    end
    repeat
      if left <= 0 then
        suspect(run, 'more', cursor, '')
        break
      end
      local page = redis.call('HSCAN', run.row, cursor, 'COUNT', left)
      cursor = page[1]
      left = left - math.max(1, #page[2] / 2)
      for j = 1, #page[2], 2 do
        local look = LOOKS[string.sub(page[2][j], 1, 2)]
        if look then look(run, string.sub(page[2][j], 3), page[2][j + 1]) end
      end
    until cursor == '0'
  end
end
return answer
