-- commit_pass: writes what one replay pass asks for, all of it or nothing (design section 8).
-- The fence is replayed_to, never the log length, which every claim and completion moves. Items that exist
-- under the same id, kind and name are skipped, so a repeated chunk changes nothing. Only the last chunk seals
-- join groups, sets replayed_to and settles the message. The row's pass says which chunks are there: none is written
-- without those before it, with which Redis may not have come back (a lost AOF tail, a failover).
-- @key stats            hash: counters of the partition
-- @derived row log hooks streams delayed nudge indexes expiring releases resumes
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg consumer
-- @arg run_id
-- @arg replayed_to      the value the pass loaded
-- @arg consumed         log length the pass has seen
-- @arg message          id of the responsible message
-- @arg stream           its stream, without the tag
-- @arg entry            its entry id
-- @arg pass             token of this pass, for a repeat after a lost reply
-- @arg chunk            number of this chunk in its pass, from 1
-- @arg last             0|1
-- @arg limit            events a log may hold
-- @arg retention        ms a finished run stays
-- @arg spec             spec version of messages
-- @arg started_at       body time of a first pass that has read nothing, in ms, else ''
-- @arg items            what the pass asks for, see include/items.lua
-- @returns committed inline 0|1 at ms | again|ended 0 at ms | chunk 0 at ms | lost responsible 0|1 | gone status
--          | diverged what | invalid what | full age_in_ms | not_found | broken why
-- @include partition entry_names clock words types retention counter pass wide usual_creations usual_passes arguments stats run steps delivery save msgpack messages wake groups hooks waits
-- @include attributes patches finish ceiling deployments items apply
-- The inline step that this message owns has ended, and the body has gone on from it. That holds only while nothing else has
-- been written since its start: any event may be one that the body sees first. False where something has.
local function record_own(run, did)
  local step = open_step(run, did.step)
  if not step or step.status ~= 'running' or step.token ~= did.token or step.group ~= '' or run.length ~= tonumber(did.length)
    or redis.call('HGET', run.row, 'own:' .. message) ~= did.step then return false end
  run.at = math.max(tonumber(did.at), run.last_at) -- what the body has taken for the time of this event
  run.at_text = string.format('%.0f', run.at)
  end_step(run, step, did.outcome, did.payload)
  run.at = math.max(run.at, now)
  run.at_text = string.format('%.0f', run.at)
  set_field(run, 'own:' .. message, false)
  run.woken_at, run.wake = run.length, message
  set_field(run, 'woken_at', run.length)
  set_field(run, 'wake', message)
  return true
end

if #ARGV < 15 then return {'broken', 'takes 15 arguments at least, not ' .. #ARGV} end
local refused = plain('run_id', run_id, 'message', message, 'pass', pass) or streams('stream', stream) or entries('entry', entry)
  or one_of('last', last, '0', '1') or numbers('now?', now, 'replayed_to', replayed_to, 'consumed', consumed,
  'chunk', chunk, 'limit', limit, 'retention', retention, 'spec', spec, 'started_at?', started_at)
if refused then return refused end
now = clock(now)
local run = open_run(run_id, now)
if run.broken then return run.broken end
if run.absent then return {'not_found'} end
local done_pass, done_word, done_number, done_at =
  string.match(redis.call('HGET', run.row, 'pass') or '', '^(%S+) (%S+) (%d+) (%d+)$')
local chunks_done = 0
if done_pass == pass then
  if done_word ~= 'chunk' then return {done_word, done_number, done_at} end
  chunks_done = tonumber(done_number)
  if last ~= '1' and tonumber(chunk) <= chunks_done then return {'chunk', '0', done_at} end
end
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
-- Redis has come back with less than the body has seen (a lost AOF tail, a failover): what it asks for has no ground. The
-- message is not settled, since a step that it had completed is running again, and goes on with it after its lease.
local writes_first = (ARGV[ITEMS] == 'did' or started_at ~= '') and 1 or 0 -- which the body has seen already
if run.length + writes_first < tonumber(consumed) or tonumber(chunk) ~= chunks_done + 1 then
  return {'lost', run.wake == message and '1' or '0'}
end

if at_ceiling(run, limit) then
  local answer = end_at_ceiling(run, retention)
  if answer[1] == 'broken' then return answer end
  settle_if_held(stream, entry, consumer)
  save_all()
  return answer
end

local items, refusal = read_items(run, ITEMS, true)
for _, item in ipairs(items or {}) do
  if last ~= '1' and (item.op == 'inline' or item.op == 'end') then
    refusal = {'broken', 'item ' .. item.op .. ' belongs into the last chunk'}
  elseif item.op == 'did' and item ~= items[1] then
    refusal = {'broken', 'item did comes first'}
  end
end
refusal = refusal or foreign_key('stats', 'hash', 'delayed', 'zset', 'nudge', 'stream', 'workflows' .. run.pin, 'stream',
  'index:status:pending', 'zset', 'index:status:running', 'zset')
if refusal then return refusal end

if #items > 0 and items[1].op == 'did' and not record_own(run, table.remove(items, 1)) then return {'lost', '0'} end
if run.status == 'pending' then start_run_now(run, tonumber(started_at)) end

local inline, ending = false, false
local tells = false -- whether the body sees something in what is written: an end it did not wait for, a token's holder

local sealed = {}
for _, item in ipairs(items) do
  local op = item.op
  if op == 'steps' then
    create_steps(run, item.starts, spec)
  elseif op == 'seal' then
    sealed[#sealed + 1] = item
  elseif op == 'end' then
    ending = item
  elseif op == 'assign' then
    local step = open_step(run, item.step)
    if step then tells = assign(run, step, item.group) or tells end
  elseif item.exists and item.group then
    tells = assign(run, open_step(run, item.id), item.group) or tells
  elseif op == 'inline' then
    create_step(run, item)
    inline = item
  else
    local word = APPLY[op](run, item, spec)
    tells = tells or word == 'hook_conflict' or (item.awaited == '1' and word == 'created')
  end
end

local function finish_call(word, inlined)
  set_field(run, 'pass', pass .. ' ' .. word .. ' ' .. (word == 'chunk' and chunk or inlined) .. ' ' .. run.at_text)
  save_all()
  return {word, tostring(inlined), run.at_text}
end

-- The steps of the chunk exist: whoever passes here again must decide alike.
local function end_chunk()
  set_field(run, 'begun_to', consumed)
  return finish_call('chunk', 0)
end

local function end_run(kind, code, payload)
  if kind == 'run_cancelled' then -- the body let a requested cancellation through: its reason goes along
    local requested = tonumber(redis.call('HGET', run.row, 'cancel_requested') or '')
    if requested then
      local _, reason = read_element(run, requested)
      payload = reason
    end
  end
  finish_run(run, string.sub(kind, 5), code, payload, tonumber(retention))
  settle_if_held(stream, entry, consumer)
  return finish_call('ended', 0)
end

-- The body has not seen yet what makes the pass go again.
local function go_again(held)
  if run.wake == '' and not held then publish_wake(run, 'recovery') end
  if held and (run.wake == '' or run.wake == message) then
    set_field(run, 'wake', message)
    return finish_call('again', 0)
  end
  if held then settle(stream, entry) end
  return finish_call('committed', 0)
end

-- The body waits: for the inline step that this message owns from now on, or for what others will tell.
local function wait(held, starting)
  set_field(run, 'wake', '')
  if starting then
    start_step(run, open_step(run, starting.id), starting.token, message, entry_name(stream, entry))
    set_field(run, 'own:' .. message, starting.id)
    return finish_call('committed', 1)
  end
  if held then settle(stream, entry) end
  return finish_call('committed', 0)
end

if last == '1' and not ending then
  for _, item in ipairs(sealed) do
    local group = open_group(run, item.group)
    group.sealed, group.mode = 1, item.mode
    tells = group_tells(group) or tells
    group.changed = true
  end
end
if tells then
  run.woken_at = run.length
  set_field(run, 'woken_at', run.length)
end
if last ~= '1' then return end_chunk() end

set_field(run, 'replayed_to', consumed)
if ending then return end_run(ending.kind, ending.code, ending.payload) end

local again = run.woken_at > tonumber(consumed)
local held = holds(stream, entry, consumer)
if inline and (again or not held) then
  dispatch(run, inline, spec)
  inline = false
end
if again then return go_again(held) end
return wait(held, inline)
