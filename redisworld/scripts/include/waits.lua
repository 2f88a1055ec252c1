-- The state of a wait: waiting|<due> | completed | cancelled.
local function wait_state(run, id)
  return run.fields['w:' .. id] or redis.call('HGET', run.row, 'w:' .. id)
end

local function is_waiting(state) return state and string.sub(state, 1, 8) == 'waiting|' end

local function create_wait(run, id, due)
  append(run, 'wait_created', id, '-', due, '')
  set_field(run, 'w:' .. id, 'waiting|' .. due)
  set_field(run, 'delays', 1) -- the reaper looks for them
  add_delayed(tonumber(due), 'wait ' .. run.id .. ' ' .. id)
end

-- completed or cancelled
local function end_wait(run, id, state)
  append(run, 'wait_' .. state, id, '-', '', '')
  set_field(run, 'w:' .. id, state)
  count('waits_' .. state)
end

local function drop_timer(run, id) redis.call('ZREM', TAG .. 'delayed', 'wait ' .. run.id .. ' ' .. id) end
