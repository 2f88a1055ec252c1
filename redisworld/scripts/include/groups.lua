-- Join groups (design section 8): steps whose single completions the body cannot see.
-- State: left|mode|sealed|failed, where failed is 0 none, 1 seen before the seal, 2 told to the body.
-- An open group is counted but silent; the last chunk of a commit seals it.
local function open_group(run, id)
  local group = run.groups[id]
  if group then return group end
  group = {id = id, left = 0, mode = 'all', sealed = 0, failed = 0}
  local state = redis.call('HGET', run.row, 'g:' .. id)
  if state then
    local left, mode, sealed, failed = string.match(state, '^(%-?%d+)|([%a_]+)|(%d)|(%d)$')
    group.left, group.mode, group.sealed, group.failed = tonumber(left), mode, tonumber(sealed), tonumber(failed)
  end
  run.groups[id] = group
  return group
end

local function save_group(run, group)
  set_field(run, 'g:' .. group.id, string.format('%d|%s|%d|%d', group.left, group.mode, group.sealed, group.failed))
end

local function grouped(id) return id ~= '' and id ~= '-' end

-- Whether the state of a sealed group is something the body sees now.
local function group_tells(group)
  if group.sealed == 0 then return false end
  if group.left <= 0 then return true end
  if group.mode == 'fail_fast' and group.failed == 1 then
    group.failed = 2
    return true
  end
  return false
end

-- A step has ended: whether the body can see it.
local function step_tells(run, step, failed)
  if step.group == '' then return true end
  if step.group == '-' then return false end
  local group = open_group(run, step.group)
  group.left = group.left - 1
  if failed and group.failed == 0 then group.failed = 1 end
  local tells = group_tells(group)
  save_group(run, group)
  return tells
end

-- A step moves to a group; one that has ended meanwhile was counted nowhere the body could see.
-- Answers whether the body sees its end now.
local function assign(run, step, id)
  if step.group == id then return false end
  if grouped(step.group) and not step.terminal then
    local old = open_group(run, step.group)
    old.left = old.left - 1
    save_group(run, old)
  end
  step.group = id
  if step.terminal then
    if grouped(id) and step.status == 'failed' then
      local group = open_group(run, id)
      if group.failed == 0 then group.failed = 1 end
      save_group(run, group)
    end
  elseif grouped(id) then
    local group = open_group(run, id)
    group.left = group.left + 1
    save_group(run, group)
  end
  save_step(run, step)
  return step.terminal and id == ''
end
