-- look_at_runs: which of these open runs wait for something that may be lost: a wake, a step, a timer. Only what
-- one look at the row and the delayed set can tell: who asks has to look through the streams for the rest.
-- With a ticket one consumer looks and the others are told busy. What is wake, step, wait,
-- later (its steps are for the next call), large (it has too many for any) or broken (state says why).
-- @key stats            hash: counters of the partition
-- @derived row log streams delayed reclaim
-- @arg consumer
-- @arg ticket           ms the ticket is held; 0 looks without one
-- @arg most             fields that are read in one call; a row with more is large
-- @arg runs             their ids, separated by blanks
-- @returns looked, then per suspect: run what id state | busy | broken why
-- @include partition arguments types stats run steps delivery msgpack entries living
local consumer, ticket, most, run_ids = unpack(ARGV)

local refused = arity(4) or numbers('ticket', ticket, 'most', most) or plain('runs', (string.gsub(run_ids, ' ', '')))
  or foreign_key('stats', 'hash', 'delayed', 'zset', 'reclaim:runs', 'string')
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
  if redis.call('ZSCORE', TAG .. 'delayed', 'step ' .. run.id .. ' ' .. id) or is_delayed(run.id, message) then return end
  suspect(run, 'step', id, state)
end

local left = tonumber(most)
for run_id in string.gmatch(run_ids, '%S+') do
  local run = open_run(run_id, 0)
  if run.broken then
    suspect(run, 'broken', '', run.broken[2])
  elseif not run.absent and not run.terminal then
    if run.woken_at > run.replayed_to and not is_delayed(run.id, run.wake) then
      suspect(run, 'wake', run.wake, run.woken_at .. ' ' .. run.replayed_to)
    end
    local size = redis.call('HLEN', run.row)
    if size > tonumber(most) then
      suspect(run, 'large', '', '')
    elseif size > left then
      suspect(run, 'later', '', '')
    else
      left = left - size
      local row = redis.call('HGETALL', run.row)
      for j = 1, #row, 2 do
        local prefix, id = string.sub(row[j], 1, 2), string.sub(row[j], 3)
        if prefix == 's:' then
          look_at_step(run, id, row[j + 1])
        elseif prefix == 'w:' and string.find(row[j + 1], '^waiting|') and not redis.call('ZSCORE', TAG .. 'delayed', 'wait ' .. run.id .. ' ' .. id) then
          suspect(run, 'wait', id, row[j + 1])
        end
      end
    end
  end
end
return answer
