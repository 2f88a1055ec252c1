-- commit_pass: writes what one replay pass asks for, all of it or nothing (design section 8).
-- The fence is replayed_to, never the log length, which every claim and completion moves. Items that exist
-- under the same id, kind and name are skipped, so a repeated chunk changes nothing. Only the last chunk seals
-- join groups, sets replayed_to and settles the message.
-- @key stats            hash: counters of the partition
-- @derived run, log, the message's stream, step and workflow streams, delayed, nudge, indexes
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg consumer
-- @arg run_id
-- @arg replayed_to      the value the pass loaded
-- @arg consumed         log length the pass has seen
-- @arg message          id of the responsible message
-- @arg stream           its stream, without the tag
-- @arg entry            its entry id
-- @arg pass             token of this pass, for a repeat after a lost reply
-- @arg last             0|1
-- @arg retention        ms a finished run stays
-- @arg spec             spec version of messages
-- @arg started_at       body time of a first pass that has read nothing, in ms, else ''
-- @arg items            what the pass asks for, see include/items.lua
-- @returns committed|again|ended inline 0|1 at ms | chunk | lost responsible 0|1 | gone status | diverged what | not_found
--          | broken why
-- @include partition clock types stats run steps delivery save msgpack messages wake groups finish items
local now, consumer, run_id, replayed_to, consumed, message, stream, entry, pass, last, retention, spec, started_at =
  unpack(ARGV, 1, 13)

local run = open_run(run_id, clock(now))
if run.broken then return {'broken', 'the row or log of this run has another type'} end
if run.absent then return {'not_found'} end
local done_pass, done_word, done_inline, done_at =
  string.match(redis.call('HGET', run.row, 'pass') or '', '^(%S+) (%S+) (%d) (%d+)$')
if done_pass == pass then return {done_word, done_inline, done_at} end
if run.terminal then
  settle_if_held(stream, entry, consumer)
  save_deliveries()
  return {'gone', run.status}
end

-- Others have committed, or written before a first pass that has read nothing: the body must see it first.
local first_pass_late = started_at ~= '' and (run.status ~= 'pending' or tonumber(started_at) < run.last_at)
if run.replayed_to ~= tonumber(replayed_to) or first_pass_late then
  if run.wake == message then return {'lost', '1'} end
  if not owns(run, message, entry_name(stream, entry)) then settle_if_held(stream, entry, consumer) end
  save_deliveries()
  return {'lost', '0'}
end

local items, refusal = read_items(run, 14, last == '1')
refusal = refusal or foreign_key('stats', 'hash', 'delayed', 'zset', 'nudge', 'stream', 'workflows' .. run.pin, 'stream',
  'index:status:pending', 'zset', 'index:status:running', 'zset')
if refusal then return refusal end

if run.status == 'pending' then start_run_now(run, tonumber(started_at)) end

local inline, ending = false, false
local tells = false -- whether something has ended unseen, as the new assignments show

local function dispatch(item)
  publish(item.target, {kind = 'step', run = run.id, step = item.id, name = item.name, spec = spec, reason = '',
    body = item.message}, run.at)
end

local function create(item)
  if item.exists then
    tells = assign(run, open_step(run, item.id), item.group) or tells
    return
  end
  local step = new_step(run, item.id, '', append(run, 'step_created', item.id, '-', item.name, item.input))
  count('steps_created')
  if item.group ~= '' then assign(run, step, item.group) else save_step(run, step) end
  if item.op == 'inline' then inline = item else dispatch(item) end
end

local function create_wait(item)
  if redis.call('HEXISTS', run.row, 'w:' .. item.id) == 1 then return end
  append(run, 'wait_created', item.id, '-', item.a, '')
  set_field(run, 'w:' .. item.id, 'waiting|' .. item.a)
  add_delayed(tonumber(item.a), 'wait ' .. run.id .. ' ' .. item.id)
end

local function cancel_wait(item)
  local state = redis.call('HGET', run.row, 'w:' .. item.id)
  if not state or string.sub(state, 1, 8) ~= 'waiting|' then return end
  append(run, 'wait_cancelled', item.id, '-', '', '')
  set_field(run, 'w:' .. item.id, 'cancelled')
  redis.call('ZREM', TAG .. 'delayed', 'wait ' .. run.id .. ' ' .. item.id)
end

local sealed = {}
for _, item in ipairs(items) do
  local op = item.op
  if op == 'step' or op == 'inline' then
    create(item)
  elseif op == 'wait' then
    create_wait(item)
  elseif op == 'unwait' then
    cancel_wait(item)
  elseif op == 'seal' then
    sealed[#sealed + 1] = item
  elseif op == 'assign' then
    local step = open_step(run, item.id)
    if step then tells = assign(run, step, item.a) or tells end
  else
    ending = item
  end
end

local function finish_call(word, inlined)
  if last == '1' then
    set_field(run, 'pass', pass .. ' ' .. word .. ' ' .. inlined .. ' ' .. run.at_text)
  end
  save_all()
  return {word, tostring(inlined), run.at_text}
end

if last == '1' and not ending then
  for _, item in ipairs(sealed) do
    local group = open_group(run, item.id)
    group.sealed, group.mode = 1, item.a
    tells = group_tells(group) or tells
    save_group(run, group)
  end
end
if tells then
  run.woken_at = run.length
  set_field(run, 'woken_at', run.length)
end
if last ~= '1' then return finish_call('chunk', 0) end

set_field(run, 'replayed_to', consumed)
if ending then
  local payload = ending.b
  if ending.id == 'run_cancelled' then -- the body let a requested cancellation through: its reason goes along
    local requested = tonumber(redis.call('HGET', run.row, 'cancel_requested') or '')
    if requested then
      local _, reason = read_element(run, requested)
      payload = reason
    end
  end
  finish_run(run, string.sub(ending.id, 5), ending.a, payload, tonumber(retention))
  settle_if_held(stream, entry, consumer)
  return finish_call('ended', 0)
end

local again = run.woken_at > tonumber(consumed)
local held = holds(stream, entry, consumer)
if inline and (again or not held) then
  dispatch(inline)
  inline = false
end
if again then
  if run.wake == '' and not held then publish_wake(run, 'recovery') end
  if held and (run.wake == '' or run.wake == message) then
    set_field(run, 'wake', message)
    return finish_call('again', 0)
  end
  if held then settle(stream, entry) end
  return finish_call('committed', 0)
end
set_field(run, 'wake', '')
if inline then
  start_step(run, open_step(run, inline.id), inline.token, message, entry_name(stream, entry))
  set_field(run, 'own:' .. message, inline.id)
  return finish_call('committed', 1)
end
if held then settle(stream, entry) end
return finish_call('committed', 0)
