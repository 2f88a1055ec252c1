-- The usual chunk of a fan-out, which is not the last one of its pass: steps that are all new, of one name, join group and
-- queue, written in one go.
-- step: id name group target message input
if ARGV[ITEMS] == 'step' and last == '0' then
  local STEP, MOST = 7, 500
  local size, name, group, target = (#ARGV - ITEMS + 1) / STEP, unpack(ARGV, ITEMS + 2, ITEMS + 4)

  local function fits_all()
    return size <= MOST and size == math.floor(size) and is_number(now) and is_number(started_at) and some_number(consumed)
      and some_number(chunk) and some_number(limit) and some_number(retention) and some_number(spec) and some_plain(run_id)
      and some_plain(message) and some_plain(pass) and is_stream(stream) and is_entry(entry) and some_plain(name) and some_plain(group) and group ~= '-'
      and is_stream(target)
  end

  -- Fields of the new states, or nil where one of the steps is to be looked at closely.
  local function new_states()
    local fields, seen = {}, {}
    for k = 1, size do
      local i = ITEMS + (k - 1) * STEP
      local id = ARGV[i + 1]
      if ARGV[i] ~= 'step' or ARGV[i + 2] ~= name or ARGV[i + 3] ~= group or ARGV[i + 4] ~= target or ARGV[i + 5] == ''
        or seen[id] or not some_plain(id) then return end
      seen[id], fields[k] = true, 's:' .. id
    end
    return fields
  end

  local function may_begin(status, read_started_at, last_at)
    if started_at == '' then return status == 'running' end
    return status == 'pending' and not read_started_at and tonumber(started_at) >= last_at
  end

  -- Whether this chunk is the next one of its pass.
  local function comes_next(done)
    if chunk == '1' then return string.sub(done, 1, #pass + 1) ~= pass .. ' ' end
    local before = pass .. ' chunk ' .. chunk - 1 .. ' '
    return string.sub(done, 1, #before) == before
  end

  local function write(row, log, read, stored, fields)
    local left, rest = 0, '|all|0|0'
    if read[8] then left, rest = string.match(read[8], '^(%d+)(|[%a_]+|%d|%d)$') end
    if not left or foreign_key(target, 'stream', 'index:status:pending', 'zset', 'index:status:running', 'zset')
      or add('steps_created', size) then return end -- the first write: OOM refuses it, and so all

    local began = started_at ~= '' and decimal(started_at)
    local at = decimal(math.max(clock(now), tonumber(read[2]) or 0, tonumber(started_at) or 0))
    local elements, written = {}, {'last_at', at, 'begun_to', consumed, 'pass', pass .. ' chunk ' .. chunk .. ' ' .. at,
      'g:' .. group, decimal(left + size) .. rest}
    if began then
      add('runs_started', 1)
      redis.call('ZADD', TAG .. 'index:status:running', read[6], run_id)
      redis.call('ZREM', TAG .. 'index:status:pending', run_id)
      elements[1] = 'run_started - - ' .. began .. '\n'
      written[9], written[10], written[11], written[12] = 'status', 'running', 'started_at', began
    end
    local events, words = #elements, #written
    local created, waiting = ' - ' .. at .. ' ' .. name .. '\n', 'pending|0|0||||' .. group .. '|'
    for k = 1, size do
      local i = ITEMS + (k - 1) * STEP
      local id = ARGV[i + 1]
      elements[events + k] = 'step_created ' .. id .. created .. ARGV[i + 6]
      written[words + 2 * k - 1], written[words + 2 * k] = fields[k], waiting .. stored + events + k .. '|0|0|0'
      redis.call('XADD', TAG .. target, '*', 'kind', 'step', 'spec', spec, 'run', run_id, 'step', id, 'name', name,
        'msg', ARGV[i + 5])
    end
    redis.call('RPUSH', log, unpack(elements))
    widen(row, size)
    redis.call('HSET', row, unpack(written))
    return {'chunk', '0', at}
  end

  local function chunk()
    local fields = fits_all() and new_states()
    if not fields then return end
    local row = TAG .. 'run:' .. run_id
    local log = row .. ':log'
    local read = redis.pcall('HMGET', row, 'status', 'last_at', 'replayed_to', 'pass', 'started_at', 'created_at', 'deployment',
      'g:' .. group, unpack(fields))
    local stored, pin = redis.pcall('LLEN', log), string.match(target, '@(.*)$')
    if read.err or type(stored) ~= 'number' or stored + size >= tonumber(limit) or read[3] ~= replayed_to
      or stored + (started_at ~= '' and 1 or 0) < tonumber(consumed)
      or not comes_next(read[4] or '') or not may_begin(read[1], read[5], tonumber(read[2]) or 0)
      or not some_number(read[6] or '') or (pin and pin ~= read[7]) then return end
    for k = 9, 8 + size do
      if read[k] then return end
    end
    return write(row, log, read, stored, fields)
  end

  local written = chunk()
  if written then return written end
end
