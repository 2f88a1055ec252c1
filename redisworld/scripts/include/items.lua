-- What a pass or a single event asks for, read and judged before anything is written. An item is
-- step|inline: id name group target message input [token] · wait: id due · unwait: id
-- · hook: id token metadata holder awaited · dispose: id · attr: id changes payload · patch: name · seal: group mode
-- · assign: step group · end: kind code payload
-- · did, first of all: step token outcome length at payload: the inline step that this pass has seen end, unrecorded
local FIELDS = {
  step = {'id', 'name', 'group', 'target', 'message', 'input'},
  inline = {'id', 'name', 'group', 'target', 'message', 'input', 'token'},
  wait = {'id', 'due'},
  unwait = {'id'},
  hook = {'id', 'token', 'metadata', 'holder', 'awaited'},
  dispose = {'id'},
  attr = {'id', 'changes', 'payload'},
  patch = {'name'},
  seal = {'group', 'mode'},
  assign = {'step', 'group'},
  ['end'] = {'kind', 'code', 'payload'},
  did = {'step', 'token', 'outcome', 'length', 'at', 'payload'},
}

local function judge_step(run, item)
  local refused = plain('id', item.id, 'name', item.name, 'group?', item.group, 'message', item.message ~= '' and 'some' or '')
    or streams('target', item.target) or plain('token', item.token or 'none')
  if refused then return refused end
  item.target = in_place(run, item.target)
  refused = foreign_key(item.target, 'stream')
  if refused then return refused end
  local step = open_step(run, item.id)
  if not step then return end
  item.exists = true
  if not step.status then return end -- it cannot be read, and judge says so
  local name = string.match(read_element(run, step.input), '^step_created %S+ %S+ %d+ (%S+)$')
  if name == item.name then return end
  return {'diverged', 'the log has step_created ' .. item.id .. ' ' .. (name or '?') .. ', the code asks for step ' .. item.name}
end

local function judge_wait(_, item)
  return plain('id', item.id) or numbers('due', item.due) or foreign_key('delayed', 'zset', 'nudge', 'stream')
end

local function judge_wait_end(_, item) return plain('id', item.id) or foreign_key('delayed', 'zset') end

local function judge_hook(run, item)
  local refused = plain('id', item.id, 'holder?', item.holder) or words('token', item.token)
    or one_of('awaited', item.awaited, '0', '1')
    or foreign_key('run:' .. run.id .. ':hooks', 'hash', 'releases', 'hash')
  if refused then return refused end
  item.exists = hook_state(run, item.id)
  if item.exists == 'claiming' then item.exists = nil end
  local token = redis.call('HGET', hooks_key(run), item.id)
  if item.exists or token == item.token then return end
  return {'broken', 'the token of hook ' .. item.id .. ' was not claimed'}
end

local function judge_attributes(run, item)
  local refused = plain('id?', item.id) or bad_changes(item.changes)
  if refused then return refused end
  item.exists = has_attributes_event(run, item.id)
  if item.exists or merge_attributes(run, item.changes) then return end
  return {'invalid', 'the run would have more than ' .. MOST_ATTRIBUTES .. ' attributes'}
end

local function judge_patch(_, item) return plain('name', item.name) end

local function judge_seal(_, item) return plain('group', item.group) or one_of('mode', item.mode, 'all', 'fail_fast') end

local function judge_assign(_, item) return plain('step', item.step, 'group?', item.group) end

local function judge_end(run, item)
  return one_of('kind', item.kind, 'run_completed', 'run_failed', 'run_cancelled') or plain('code?', item.code)
    or foreign_end(run, string.sub(item.kind, 5))
end

local function judge_did(_, item)
  return plain('step', item.step, 'token', item.token) or one_of('outcome', item.outcome, 'completed', 'failed')
    or numbers('length', item.length, 'at', item.at)
end

local function judge_dispose(run, item)
  return plain('id', item.id) or foreign_key('run:' .. run.id .. ':hooks', 'hash', 'releases', 'hash')
end

local JUDGE = {step = judge_step, inline = judge_step, wait = judge_wait, unwait = judge_wait_end, hook = judge_hook,
  dispose = judge_dispose, attr = judge_attributes, patch = judge_patch, seal = judge_seal, assign = judge_assign, ['end'] = judge_end,
  did = judge_did}

local function cannot_be_read(run, item)
  if item.group and grouped(item.group) and not open_group(run, item.group) then return true end
  local step = (item.op == 'assign' or item.exists == true) and open_step(run, item.step or item.id)
  return step and unreadable(run, step)
end

local creating = {step = true, inline = true, wait = true, hook = true, attr = true}
local asked = {}

local function judge(run, item)
  if creating[item.op] and item.id ~= '' then
    if asked[item.id] then return {'broken', 'item ' .. item.id .. ' is asked for twice'} end
    asked[item.id] = true
  end
  local refused = JUDGE[item.op](run, item)
  if refused then return refused end
  if cannot_be_read(run, item) then
    return {'broken', 'the state of step or join group ' .. (item.step or item.id or item.group) .. ' cannot be read'}
  end
end

-- The ids of the steps that are asked for from ARGV[at] on.
local function step_ids(at)
  local ids = {}
  while at < #ARGV and FIELDS[ARGV[at]] do
    if ARGV[at] == 'step' then ids[#ids + 1] = ARGV[at + 1] end
    at = at + #FIELDS[ARGV[at]] + 1
  end
  return ids
end

-- Nearly all steps of a fan-out are new and look alike: whether the one at ARGV[at] does. Their names, groups and streams
-- are judged once.
local words_seen, streams_seen = {}, {}

local function is_usual_step(run, at)
  local id, name, group, target = unpack(ARGV, at + 1, at + 4)
  if ARGV[at] ~= 'step' or #ARGV < at + 6 or asked[id] or run.states['s:' .. id] ~= false or ARGV[at + 5] == ''
    or string.find(id, '[%s|]') or id == '' then return false end
  local word = name .. ' ' .. group
  if words_seen[word] == nil then
    words_seen[word] = is_plain(name) and name ~= '' and is_plain(group) and (not grouped(group) or open_group(run, group) ~= nil)
  end
  if streams_seen[target] == nil then
    streams_seen[target] = is_stream(target) and in_place(run, target) == target and not foreign_key(target, 'stream')
  end
  return words_seen[word] and streams_seen[target]
end

-- Adds the usual step at ARGV[at] to those right before it: one item, {op = 'steps', starts}.
local function add_usual_step(items, at)
  asked[ARGV[at + 1]] = true
  local steps = items[#items]
  if not steps or steps.op ~= 'steps' then
    steps = {op = 'steps', starts = {}}
    items[#items + 1] = steps
  end
  steps.starts[#steps.starts + 1] = at
end

-- The items from ARGV[at] on; or nil and the answer of a call that must not be. With together, usual steps in a row are one.
local function read_items(run, at, together)
  local items = {}
  read_states(run, step_ids(at))
  while at <= #ARGV do
    while together and is_usual_step(run, at) do
      add_usual_step(items, at)
      at = at + 7
    end
    if at > #ARGV then break end
    local fields = FIELDS[ARGV[at]]
    if not fields then return nil, {'broken', 'unknown item ' .. string.sub(ARGV[at], 1, 80)} end
    local item = {op = ARGV[at]}
    if #ARGV < at + #fields then return nil, {'broken', 'item ' .. item.op .. ' takes ' .. #fields .. ' arguments, not ' .. #ARGV - at} end
    for i = 1, #fields do item[fields[i]] = ARGV[at + i] end
    local refusal = judge(run, item)
    if refusal then return nil, refusal end
    items[#items + 1] = item
    at = at + #fields + 1
  end
  return items
end
