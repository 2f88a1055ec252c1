-- Who continues a run (design section 8): at most one responsible message, named by the row's field wake.
local WAKE_SPEC = 1

-- due: when it is to come, where that is later than now
local function publish_wake(run, reason, id, due)
  id = id or 'w' .. run.length
  local body = pack_map({pack_text('kind'), pack_text('workflow'), pack_text('message_id'), pack_text(id),
    pack_text('run_id'), pack_text(run.id), pack_text('workflow_name'), pack_text(run.workflow),
    pack_text('reason'), pack_text(reason), pack_text('requested_at'), pack_number(run.at)})
  local message = {kind = 'workflow', run = run.id, step = '', name = run.workflow, spec = WAKE_SPEC, reason = reason, body = body}
  if due then delay(due, id, 'workflows' .. run.pin, message) else publish('workflows' .. run.pin, message, run.at) end
  run.wake = id
  set_field(run, 'wake', id)
  count('wakes')
end

-- An event that the body can see has been appended. The caller's message becomes responsible when it may
-- (a held delivery whose worker may replay), else a wake is published; where a message is responsible
-- already, it will see the event. Answers responsible, woken or settled.
local function observe(run, reason, message, may_take)
  run.woken_at = run.length
  set_field(run, 'woken_at', run.length)
  if run.wake ~= '' then
    if may_take and run.wake == message then return 'responsible' end
    return 'settled'
  end
  if not may_take then
    publish_wake(run, reason)
    return 'woken'
  end
  run.wake = message
  set_field(run, 'wake', message)
  return 'responsible'
end
