-- Join groups (design section 8): steps whose single completions the body cannot see.
-- State: left|mode|sealed|failed, where failed is 1 for a failure before the seal.
-- An open group is counted but silent; the last chunk of a commit seals it. Counted in memory, written by save_run.
local GROUP_STATE = '^(%-?%d+)|([%a_]+)|(%d)|(%d)$'

local function grouped(id) return id ~= '' and id ~= '-' end

-- nil where the state cannot be read
local function open_group(run, id)
  local group = run.groups[id]
  if group then return group end
  group = {left = 0, mode = 'all', sealed = 0, failed = 0}
  local state = redis.call('HGET', run.row, 'g:' .. id)
  if state then
    local left, mode, sealed, failed = string.match(state, GROUP_STATE)
    if not left then return nil end
    group.left, group.mode, group.sealed, group.failed = tonumber(left), mode, tonumber(sealed), tonumber(failed)
  end
  run.groups[id] = group
  return group
end

local function unreadable(run, step)
  return not step.status or (grouped(step.group) and not open_group(run, step.group))
end

-- Whether what a sealed group has come to is something the body sees.
local function group_tells(group)
  if group.sealed == 0 then return false end
  local failed = group.mode == 'fail_fast' and group.failed == 1
  group.failed = 0
  return group.left <= 0 or failed
end

-- A step has ended: whether the body can see it. Each failure of a fail_fast group tells: the pass that sees the
-- first one takes the others out of the group, and until then a responsible message makes a repeat free.
local function step_tells(run, step, failed)
  if step.group == '' then return true end
  if step.group == '-' then return false end
  local group = open_group(run, step.group)
  group.left = group.left - 1
  if failed then group.failed = 1 end
  local tells = group_tells(group)
  group.changed = true
  return tells
end

local function leave(run, step)
  if not grouped(step.group) or step.terminal then return false end
  local group = open_group(run, step.group)
  group.left = group.left - 1
  local tells = group_tells(group) -- the others may all have ended, unseen
  group.changed = true
  return tells
end

local function join(run, step, id)
  if not grouped(id) then return step.terminal and id == '' end
  local group = open_group(run, id)
  if not step.terminal then
    group.left = group.left + 1
  elseif step.status == 'failed' then
    group.failed = 1
  end
  group.changed = true
  return false -- the seal looks at the group
end

-- A step moves to a group. The engine moves only steps that it has not seen end: one that has ended meanwhile was
-- counted where the body does not look any more. Answers whether the body sees an end now.
local function assign(run, step, id)
  if step.group == id then return false end
  local left = leave(run, step)
  local joined = join(run, step, id)
  step.group = id
  save_step(run, step)
  return left or joined
end
