-- start_many: creates runs and their first messages, once per run id, each item answered on its own; a message comes now, or
-- when its run is due. Output streams that a run of the same id has left behind, whose row and log have gone, go.
-- @key stats            hash: counters of the partition
-- @derived row log outs outputs streams indexes delayed bodies nudge
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg items            10 arguments each: run_id, workflow (its name), deployment, pin ('@<deployment>' when messages go to
--                       the deployment's own streams, else ''), spec (version of message and events), root (root run id),
--                       created (payload of run_created), message (the first one, with message id 'start'), delay (ms from
--                       now until the run starts, 0 for at once), start_at (time in ms at which it starts instead, or '')
-- @returns list of: created created_at | conflict status workflow created_at | broken why
-- @include partition clock words types counter usual_starts arguments stats run messages outputs
local FIRST, STRIDE = 2, 10
local now = ARGV[1]

local refused = whole_items(FIRST, STRIDE) or numbers('now?', now) or foreign_key('stats', 'hash')
if refused then return refused end
now = clock(now)

-- What to answer instead of creating the run; nil where it is to be created, which it counts as from then on.
local function judge(i)
  local run_id, workflow, deployment, pin, spec, root = unpack(ARGV, i, i + 5)
  local bad = numbers('spec', spec, 'delay', ARGV[i + 8], 'start_at?', ARGV[i + 9])
    or plain('run_id', run_id, 'workflow', workflow, 'deployment?', deployment, 'pin?', pin, 'root', root)
  if bad then return bad end
  local run = open_run(run_id, now)
  if run.broken then return run.broken end
  if not run.absent then return {'conflict', run.status, run.workflow, run.created_at} end
  local foreign = without_row(run) or foreign_key('workflows' .. pin, 'stream', 'index:created', 'zset', 'index:status:pending', 'zset',
    'delayed', 'zset', 'delayed:body', 'hash', 'nudge', 'stream')
  if foreign then return foreign end
  run.outputs = redis.pcall('HGET', run.row .. ':outs', 'names')
  if type(run.outputs) == 'table' then return foreign_key('run:' .. run_id .. ':outs', 'hash') end
  run.absent, run.status, run.workflow, run.created_at = false, 'pending', workflow, run.at_text
end

local created = {} -- times and ids, as ZADD takes them

local function create(i)
  local run_id, workflow, deployment, pin, spec, root, payload, body, wait_ms, start_at = unpack(ARGV, i, i + 9)
  local run = open_run(run_id, now)
  local due = start_at ~= '' and tonumber(start_at) or run.at + tonumber(wait_ms)
  local row = {'status', 'pending', 'workflow', workflow, 'spec', spec, 'created_at', run.at_text, 'woken_at', 1,
    'replayed_to', 0, 'wake', 'start', 'last_at', run.at_text}
  local function add(field, value)
    if value == '' then return end
    row[#row + 1] = field
    row[#row + 1] = value
  end
  add('deployment', deployment)
  add('pin', pin)
  add('root', root == run_id and '' or root)
  add('start_at', due > run.at and string.format('%.0f', due) or '')
  if run.outputs then delete_outputs(run.row) end
  redis.call('RPUSH', run.log, 'run_created - - ' .. run.at_text .. ' ' .. workflow .. '\n' .. payload)
  redis.call('HSET', run.row, unpack(row))
  created[#created + 1] = run.at_text
  created[#created + 1] = run_id
  local first = {kind = 'workflow', run = run_id, step = '', name = workflow, spec = spec, reason = 'start', body = body}
  if due > run.at then -- in the delayed set until then, where no lease can run out
    delay(due, 'start', 'workflows' .. pin, first)
  else
    publish('workflows' .. pin, first, run.at)
  end
  return {'created', run.at_text}
end

local answers, creating = {}, {}
for i = FIRST, #ARGV, STRIDE do
  local k = (i - FIRST) / STRIDE + 1
  answers[k] = judge(i)
  if not answers[k] then creating[#creating + 1] = i end
end
if #creating == 0 then return answers end

count('runs_created', #creating)
save_stats() -- first: OOM refuses it, and with it the whole call
for _, i in ipairs(creating) do answers[(i - FIRST) / STRIDE + 1] = create(i) end
push_all('ZADD', TAG .. 'index:created', created)
push_all('ZADD', TAG .. 'index:status:pending', created)
return answers
