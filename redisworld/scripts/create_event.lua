-- create_event: one event that no pass of ours writes: a foreign runtime's, an operator's, a step's attributes.
-- @key stats            hash: counters of the partition
-- @derived row log hooks resumes streams delayed nudge indexes expiring releases bodies
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg run_id
-- @arg limit            events a log may hold
-- @arg retention        ms a finished run stays
-- @arg spec             spec version of messages
-- @arg item             start | waited id | step, wait, unwait, hook, dispose, attr, patch or end as in include/items.lua
-- @returns started at | created | completed | cancelled | disposed | ended | conflict status | hook_conflict | gone status
--          | invalid what | diverged what | full age_in_ms | not_found | broken why
-- @include partition entry_names words arguments clock types counter stats run steps delivery save msgpack messages wake groups hooks waits attributes patches retention finish
-- @include ceiling deployments items wide apply
local now, run_id, limit, retention, spec, op = unpack(ARGV, 1, 6)

if #ARGV < 6 then return {'broken', 'takes 6 arguments at least, not ' .. #ARGV} end
local refused = plain('run_id', run_id) or numbers('now?', now, 'limit', limit, 'retention', retention, 'spec', spec)
if op == 'start' then refused = refused or arity(6) end
if op == 'waited' then refused = refused or arity(7) or plain('id', ARGV[7]) end
if refused then return refused end

local run = open_run(run_id, clock(now))
if run.broken then return run.broken end
if run.absent then return {'not_found'} end
if run.terminal then return {op == 'end' and 'conflict' or 'gone', run.status} end

local function start()
  local foreign = foreign_key('stats', 'hash', 'index:status:pending', 'zset', 'index:status:running', 'zset')
  if foreign then return foreign end
  if run.status == 'pending' then start_run_now(run) end
  return {'started', run.fields.started_at or redis.call('HGET', run.row, 'started_at')}
end

local function complete_wait(id)
  local state = wait_state(run, id)
  if not state then return {'not_found'} end
  if not is_waiting(state) then return {'conflict', ''} end
  local foreign = foreign_key('stats', 'hash', 'delayed', 'zset', 'workflows' .. run.pin, 'stream')
  if foreign then return foreign end
  end_wait(run, id, 'completed')
  drop_timer(run, id)
  observe(run, 'timer', '', false)
  return {'completed'}
end

local function one_item()
  local items, refusal = read_items(run, 6)
  if refusal then return refusal end
  local item = items[1]
  if #items ~= 1 or item.op == 'inline' or item.op == 'seal' or item.op == 'assign' or item.op == 'did' then
    return {'broken', 'item ' .. item.op .. ' is no single event'}
  end
  local foreign = foreign_key('stats', 'hash', 'delayed', 'zset', 'delayed:body', 'hash')
  if foreign then return foreign end
  if item.op ~= 'end' then return {APPLY[item.op](run, item, spec), ''} end
  drop_first_message(run)
  finish_run(run, string.sub(item.kind, 5), item.code, item.payload, tonumber(retention))
  return {'ended'}
end

local answer
if op == 'start' then
  answer = start()
elseif op ~= 'end' and at_ceiling(run, limit) then
  answer = end_at_ceiling(run, retention)
elseif op == 'waited' then
  answer = complete_wait(ARGV[7])
else
  answer = one_item()
end
if answer[1] ~= 'broken' then save_all() end
return answer
