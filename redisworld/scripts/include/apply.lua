-- What one item of a pass, or a single event, writes. Answers created, completed, cancelled or disposed; conflict where
-- it has happened already, hook_conflict where another hook holds the token, not_found where there is nothing to end.
local function create_step(run, item)
  create_state(run, item.id, item.group, append(run, 'step_created', item.id, '-', item.name, item.input))
  if not grouped(item.group) then return end
  local group = open_group(run, item.group)
  group.left, group.changed = group.left + 1, true
end

local function dispatch(run, item, spec)
  publish(item.target, {kind = 'step', run = run.id, step = item.id, name = item.name, spec = spec, reason = '',
    body = item.message}, run.at)
end

-- Creates the steps whose items begin at these arguments, all of them new, and sends them to their queues.
local function create_steps(run, starts, spec)
  local elements, fields, names, stored, length, by_group = run.elements, run.fields, run.names, run.stored, run.length, {}
  for _, i in ipairs(starts) do
    local id, name, group, target, message, input = unpack(ARGV, i + 1, i + 6)
    local field = 's:' .. id
    length = length + 1
    elements[length - stored] = 'step_created ' .. id .. ' - ' .. run.at_text .. ' ' .. name .. '\n' .. input
    names[#names + 1], fields[field] = field, 'pending|0|0||||' .. group .. '|' .. length .. '|0|0|0'
    by_group[group] = (by_group[group] or 0) + 1
    redis.call('XADD', TAG .. target, '*', 'kind', 'step', 'spec', spec, 'run', run.id, 'step', id, 'name', name, 'msg', message)
  end
  run.length = length
  widen(run.row, #starts)
  count('steps_created', #starts)
  for id, number in pairs(by_group) do
    if grouped(id) then
      local group = open_group(run, id)
      group.left, group.changed = group.left + number, true
    end
  end
end

local APPLY = {}

function APPLY.step(run, item, spec)
  if item.exists then return 'conflict' end
  create_step(run, item)
  dispatch(run, item, spec)
  return 'created'
end

function APPLY.wait(run, item)
  if wait_state(run, item.id) then return 'conflict' end
  create_wait(run, item.id, item.due)
  return 'created'
end

function APPLY.unwait(run, item)
  local state = wait_state(run, item.id)
  if not state then return 'not_found' end
  if not is_waiting(state) then return 'conflict' end
  end_wait(run, item.id, 'cancelled')
  drop_timer(run, item.id)
  return 'cancelled'
end

function APPLY.hook(run, item)
  if item.exists then return 'conflict' end
  create_hook(run, item.id, item.token, item.metadata, item.holder)
  return item.holder == '' and 'created' or 'hook_conflict'
end

function APPLY.dispose(run, item)
  local state = hook_state(run, item.id)
  if state == 'disposed' then return 'conflict' end
  if state ~= 'open' then return 'not_found' end
  dispose_hook(run, item.id)
  return 'disposed'
end

function APPLY.patch(run, item)
  if has_patch(run, item.name) then return 'conflict' end
  save_patch(run, item.name)
  return 'created'
end

function APPLY.attr(run, item)
  if item.exists then return 'conflict' end
  save_attributes(run, item.id, item.payload)
  return 'created'
end
