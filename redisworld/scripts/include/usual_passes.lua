-- The three usual passes of a row of steps, each written in one go; any other pass is left to the rest of the script:
-- the first one starts the run and its first step; one in the middle records the inline step that this message owns as
-- completed, and starts the next; the last one records it, and completes the run. Nothing else has happened meanwhile.
-- did: step token outcome length at payload; inline: id name group target message input token; end: kind code payload
do
  local DID, INLINE, END = 7, 8, 4

  local function holds_entry()
    local held = redis.pcall('XPENDING', TAG .. stream, GROUP, entry, entry, 1, consumer)
    return not held.err and held[1]
  end

  local function counted(first, ...)
    if add(first, 1) then return false end
    for _, name in ipairs({...}) do add(name, 1) end
    return true
  end

  local function fits_all()
    return chunk == '1' and last == '1' and is_number(now) and some_number(limit) and some_number(retention)
      and some_number(spec) and some_plain(pass) and is_stream(stream)
  end

  -- The step at ARGV[at], which starts right away under this message.
  local function fits_inline(at)
    local id, name, group, target, body, _, token = unpack(ARGV, at + 1, at + 7)
    return group == '' and body ~= '' and some_plain(id) and some_plain(name) and some_plain(token)
      and string.find(target, '^steps%S*$')
  end

  -- Its state, where number is that of its step_created and of the event right after that.
  local function started_state(at, number)
    local id, token = ARGV[at + 1], ARGV[at + 7]
    return 'running|1|0|' .. token .. '|' .. (message == id and '' or message) .. '|' .. entry_name(stream, entry) .. '||' .. number
      .. '|0|0|' .. number + 1
  end

  -- The inline step that has ended, as the row and the log have it: what its state is then, and the time of the row.
  local function own_step(read, stored)
    local step, token, outcome, length, ended_at = unpack(ARGV, ITEMS + 1, ITEMS + 5)
    if read[1] ~= 'running' or read[3] ~= replayed_to or read[5] ~= step or type(stored) ~= 'number' or decimal(stored) ~= length
      or decimal(stored + 1) ~= consumed or string.sub(read[4] or '', 1, #pass + 1) == pass .. ' ' or outcome ~= 'completed'
      or not some_number(ended_at) or string.sub(read[6] or '', 13, 13 + #token) ~= token .. '|' then return end
    local input_at, started = string.match(read[6], '^running|1|0|[^|]*|[^|]*|[^|]*||(%d+)|0|0|(%d+)$')
    if not input_at then return end
    return 'completed|1|0|' .. token .. '||||' .. input_at .. '|0|0|' .. started
  end

  local function first_pass()
    if not (fits_all() and some_plain(message) and some_number(started_at) and some_number(consumed) and fits_inline(ITEMS)) then return end
    local id, name, _, _, _, input = unpack(ARGV, ITEMS + 1, ITEMS + 6)
    local row, log = TAG .. 'run:' .. run_id, TAG .. 'run:' .. run_id .. ':log'
    local read = redis.pcall('HMGET', row, 'status', 'last_at', 'replayed_to', 'pass', 'woken_at', 'created_at', 'started_at', 's:' .. id)
    local stored = redis.pcall('LLEN', log)
    local began = tonumber(started_at)
    if read[1] ~= 'pending' or read[3] ~= replayed_to or read[4] or read[7] or read[8] or type(stored) ~= 'number'
      or stored + 1 < tonumber(consumed) or stored + 3 > tonumber(limit) or began < (tonumber(read[2]) or 0)
      or (tonumber(read[5]) or 0) > tonumber(consumed)
      or not some_number(read[6] or '') or not holds_entry() or foreign_key('index:status:pending', 'zset', 'index:status:running', 'zset')
      or not counted('runs_started', 'steps_created', 'steps_started') then return end

    redis.call('ZADD', TAG .. 'index:status:running', read[6], run_id)
    redis.call('ZREM', TAG .. 'index:status:pending', run_id)
    local at = decimal(math.max(clock(now), began))
    redis.call('RPUSH', log, 'run_started - - ' .. decimal(began) .. '\n', 'step_created ' .. id .. ' - ' .. at .. ' ' .. name .. '\n' .. input,
      'step_started ' .. id .. ' 1 ' .. at .. '\n')
    redis.call('HSET', row, 'status', 'running', 'started_at', decimal(began), 's:' .. id, started_state(ITEMS, stored + 2),
      'replayed_to', consumed, 'wake', '', 'own:' .. message, id, 'pass', pass .. ' committed 1 ' .. at, 'last_at', at)
    return {'committed', '1', at}
  end

  local function next_pass()
    local inline = ITEMS + DID
    local step, id, name = ARGV[ITEMS + 1], ARGV[inline + 1], ARGV[inline + 2]
    if not fits_all() or started_at ~= '' or id == step or not fits_inline(inline) then return end
    local row, log, own = TAG .. 'run:' .. run_id, TAG .. 'run:' .. run_id .. ':log', 'own:' .. message
    local read = redis.pcall('HMGET', row, 'status', 'last_at', 'replayed_to', 'pass', own, 's:' .. step, 's:' .. id)
    local stored = redis.pcall('LLEN', log)
    local done = own_step(read, stored)
    if not done or read[7] or stored + 3 > tonumber(limit) or not holds_entry()
      or not counted('steps_completed', 'steps_created', 'steps_started') then return end

    local then_ms = math.max(tonumber(ARGV[ITEMS + 5]), tonumber(read[2]) or 0) -- what the body has taken for the time of the end
    local at = decimal(math.max(clock(now), then_ms))
    redis.call('RPUSH', log, 'step_completed ' .. step .. ' 1 ' .. decimal(then_ms) .. '\n' .. ARGV[ITEMS + 6],
      'step_created ' .. id .. ' - ' .. at .. ' ' .. name .. '\n' .. ARGV[inline + 6], 'step_started ' .. id .. ' 1 ' .. at .. '\n')
    redis.call('HSET', row, 's:' .. step, done, 's:' .. id, started_state(inline, stored + 2), 'woken_at', stored + 1,
      'wake', '', 'replayed_to', consumed, own, id, 'pass', pass .. ' committed 1 ' .. at, 'last_at', at)
    return {'committed', '1', at}
  end

  local function last_pass()
    local kind, code, payload = unpack(ARGV, ITEMS + DID + 1, ITEMS + DID + 3)
    if not fits_all() or started_at ~= '' or kind ~= 'run_completed' or code ~= '' then return end
    local step, row, log, own = ARGV[ITEMS + 1], TAG .. 'run:' .. run_id, TAG .. 'run:' .. run_id .. ':log', 'own:' .. message
    local read = redis.pcall('HMGET', row, 'status', 'last_at', 'replayed_to', 'pass', own, 's:' .. step, 'created_at')
    local stored = redis.pcall('LLEN', log)
    local done = own_step(read, stored)
    if not done or stored + 2 > tonumber(limit) or not some_number(read[7] or '') or redis.call('EXISTS', row .. ':hooks') == 1
      or not holds_entry() or foreign_key('expiring', 'zset', 'index:status:running', 'zset', 'index:status:completed', 'zset')
      or not counted('steps_completed', 'runs_completed') then return end

    local then_ms = math.max(tonumber(ARGV[ITEMS + 5]), tonumber(read[2]) or 0)
    local at_ms, expire_ms = math.max(clock(now), then_ms), tonumber(retention) + BACKSTOP_MS
    local at = decimal(at_ms)
    redis.call('ZADD', TAG .. 'index:status:completed', read[7], run_id)
    redis.call('ZREM', TAG .. 'index:status:running', run_id)
    redis.call('ZADD', TAG .. 'expiring', at_ms + retention, run_id)
    redis.call('XACK', TAG .. stream, GROUP, entry)
    redis.call('XDEL', TAG .. stream, entry)
    redis.call('RPUSH', log, 'step_completed ' .. step .. ' 1 ' .. decimal(then_ms) .. '\n' .. ARGV[ITEMS + 6],
      'run_completed - - ' .. at .. '\n' .. payload)
    redis.call('HSET', row, 's:' .. step, done, 'status', 'completed', 'finished_at', at, 'finished_event', stored + 2,
      'pass', pass .. ' ended 0 ' .. at, 'last_at', at)
    redis.call('HDEL', row, own, 'wake', 'woken_at', 'replayed_to', 'begun_to')
    redis.call('PEXPIRE', row, expire_ms)
    redis.call('PEXPIRE', log, expire_ms)
    redis.call('PEXPIRE', row .. ':resumes', expire_ms)
    redis.call('PUBLISH', TAG .. 'ended', run_id)
    return {'ended', '0', at}
  end

  local words = #ARGV - 15
  local written = ARGV[ITEMS] == 'inline' and words == INLINE and first_pass()
    or ARGV[ITEMS] == 'did' and words == DID + INLINE and ARGV[ITEMS + DID] == 'inline' and next_pass()
    or ARGV[ITEMS] == 'did' and words == DID + END and ARGV[ITEMS + DID] == 'end' and last_pass()
  if written then return written end
end
