-- The usual starts: runs that nobody has seen, and that begin at once. A call of such starts only is written in one go.
do
  local FIRST, STRIDE, MOST = 2, 10, 200

  -- The streams that these starts go to, each once; nil where one of the starts is to be looked at closely.
  local function usual_streams()
    local seen, streams = {}, {}
    for i = FIRST, #ARGV, STRIDE do
      local id, workflow, deployment, pin, spec, root = unpack(ARGV, i, i + 5)
      if seen[id] or ARGV[i + 8] ~= '0' or ARGV[i + 9] ~= '' or not (some_plain(id) and some_plain(workflow)
        and some_plain(root) and some_number(spec) and is_plain(deployment) and is_plain(pin)) then return end
      seen[id], streams['workflows' .. pin] = true, true
      local row = TAG .. 'run:' .. id
      if redis.call('EXISTS', row, row .. ':log', row .. ':outs') > 0 then return end
    end
    return streams
  end

  local function start_all()
    local count = (#ARGV - FIRST + 1) / STRIDE
    if count < 1 or count > MOST or count ~= math.floor(count) or not is_number(ARGV[1]) then return end
    local streams = usual_streams()
    if not streams or foreign_key('index:created', 'zset', 'index:status:pending', 'zset') then return end
    for stream in pairs(streams) do
      if foreign_key(stream, 'stream') then return end
    end
    if add('runs_created', count) then return end -- OOM refuses it, and so all

    local at = string.format('%.0f', clock(ARGV[1]))
    local answer, answers, created = {'created', at}, {}, {}
    for i = FIRST, #ARGV, STRIDE do
      local id, workflow, deployment, pin, spec, root, payload, body = unpack(ARGV, i, i + 7)
      local row, size = {'status', 'pending', 'workflow', workflow, 'spec', spec, 'created_at', at, 'woken_at', 1, 'replayed_to', 0,
        'wake', 'start', 'last_at', at}, 16
      if deployment ~= '' then row[size + 1], row[size + 2], size = 'deployment', deployment, size + 2 end
      if pin ~= '' then row[size + 1], row[size + 2], size = 'pin', pin, size + 2 end
      if root ~= id then row[size + 1], row[size + 2] = 'root', root end
      redis.call('RPUSH', TAG .. 'run:' .. id .. ':log', 'run_created - - ' .. at .. ' ' .. workflow .. '\n' .. payload)
      redis.call('HSET', TAG .. 'run:' .. id, unpack(row))
      redis.call('XADD', TAG .. 'workflows' .. pin, '*', 'kind', 'workflow', 'spec', spec, 'run', id, 'name', workflow,
        'reason', 'start', 'at', at, 'msg', body)
      answers[#answers + 1], created[#created + 1], created[#created + 2] = answer, at, id
    end
    redis.call('ZADD', TAG .. 'index:created', unpack(created))
    redis.call('ZADD', TAG .. 'index:status:pending', unpack(created))
    return answers
  end

  local written = start_all()
  if written then return written end
end
