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
