-- Two more usual passes, each written in one go: one in the middle of a row of steps records the inline step that this
-- message owns as completed, and starts the next; the last one completes the run, and records that step if there is one.
-- Nothing else has happened since its start. Any other pass is left to the rest of the script.
-- did: step token outcome length at payload; inline: id name group target message input token; end: kind code payload
do
  local DID, INLINE, END = 7, 8, 4

  local function counted(first, ...)
    if add(first, 1) then return false end -- OOM refuses it, and so all
    for _, name in ipairs({...}) do add(name, 1) end
    return true
  end

  local function fits_all() return started_at == '' and chunk == '1' and last == '1' and fits_pass() end

  local function is_open(read, stored)
    return read[1] == 'running' and number_in(read[2]) and read[3] == replayed_to and type(stored) == 'number'
      and not is_of_pass(read[4])
  end

  -- The state of the inline step that has ended, if row and log have it as it was when it started.
  local function own_step(read, stored)
    local step, token, outcome, length, ended_at = unpack(ARGV, ITEMS + 1, ITEMS + 5)
    if read[5] ~= step or decimal(stored) ~= length or decimal(stored + 1) ~= consumed or outcome ~= 'completed'
      or not some_number(ended_at) or string.sub(read[6] or '', 13, 13 + #token) ~= token .. '|' then return end
    local input_at, started = string.match(read[6], '^running|1|0|[^|]*|[^|]*|[^|]*||(%d+)|0|0|(%d+)$')
    if not input_at then return end
    return 'completed|1|0|' .. token .. '||||' .. input_at .. '|0|0|' .. started
  end

  -- Its event, and the time that the body has taken for that of its end.
  local function own_end(last_at)
    local then_ms = math.max(tonumber(ARGV[ITEMS + 5]), tonumber(last_at))
    return 'step_completed ' .. ARGV[ITEMS + 1] .. ' 1 ' .. decimal(then_ms) .. '\n' .. ARGV[ITEMS + 6], then_ms
  end

  local function next_pass()
    local step, inline = ARGV[ITEMS + 1], ITEMS + DID
    local id, name, group, target, body, input, token = unpack(ARGV, inline + 1, inline + 7)
    if not fits_all() or id == step or group ~= '' or body == '' or not string.find(target, '^steps%S*$')
      or not (some_plain(id) and some_plain(name) and some_plain(token)) then return end
    local row, log, own = row_key(run_id), log_key(run_id), 'own:' .. message
    local read = redis.pcall('HMGET', row, 'status', 'last_at', 'replayed_to', 'pass', own, 's:' .. step, 's:' .. id)
    local stored = redis.pcall('LLEN', log)
    local done = is_open(read, stored) and own_step(read, stored)
    if not done or read[7] or stored + 3 > tonumber(limit) or not holds_entry()
      or not counted('steps_completed', 'steps_created', 'steps_started') then return end

    local ended, then_ms = own_end(read[2])
    local at = decimal(math.max(clock(now), then_ms))
    redis.call('RPUSH', log, ended, 'step_created ' .. id .. ' - ' .. at .. ' ' .. name .. '\n' .. input,
      'step_started ' .. id .. ' 1 ' .. at .. '\n')
    redis.call('HSET', row, 's:' .. step, done, 's:' .. id, started_state(id, token, '', stored + 2), 'woken_at', stored + 1,
      'wake', '', 'replayed_to', consumed, own, id, 'pass', pass .. ' committed 1 ' .. at, 'last_at', at)
    return {'committed', '1', at}
  end

  -- end stands at ARGV[at], behind did or alone.
  local function last_pass(at)
    local kind, code, payload = unpack(ARGV, at + 1, at + 3)
    if not fits_all() or kind ~= 'run_completed' or code ~= '' then return end
    local has_step, step = at > ITEMS, ARGV[ITEMS + 1]
    local row, log, own = row_key(run_id), log_key(run_id), 'own:' .. message
    local read = redis.pcall('HMGET', row, 'status', 'last_at', 'replayed_to', 'pass', own, 's:' .. step, 'created_at')
    local stored = redis.pcall('LLEN', log)
    if not is_open(read, stored) then return end
    local done = has_step and own_step(read, stored)
    if (has_step and not done) or (not has_step and stored < tonumber(consumed)) or stored + 2 > tonumber(limit) or not number_in(read[7])
      or redis.call('EXISTS', row .. ':hooks') == 1 or not holds_entry()
      or foreign_key('expiring', 'zset', 'index:status:running', 'zset', 'index:status:completed', 'zset')
      or not counted('runs_completed') then return end

    local ended, then_ms = nil, tonumber(read[2])
    if done then
      add('steps_completed', 1)
      ended, then_ms = own_end(read[2])
    end
    local at_ms, expire_ms = math.max(clock(now), then_ms), tonumber(retention) + BACKSTOP_MS
    local at_text = decimal(at_ms)
    redis.call('ZADD', TAG .. 'index:status:completed', read[7], run_id)
    redis.call('ZREM', TAG .. 'index:status:running', run_id)
    redis.call('ZADD', TAG .. 'expiring', at_ms + retention, run_id)
    settle_entry()
    local completed = 'run_completed - - ' .. at_text .. '\n' .. payload
    if done then
      redis.call('RPUSH', log, ended, completed)
      redis.call('HSET', row, 's:' .. step, done)
    else
      redis.call('RPUSH', log, completed)
    end
    redis.call('HSET', row, 'status', 'completed', 'finished_at', at_text, 'finished_event', stored + (done and 2 or 1),
      'pass', pass .. ' ended 0 ' .. at_text, 'last_at', at_text)
    redis.call('HDEL', row, 'wake', 'woken_at', 'replayed_to', 'begun_to', done and own or 'wake')
    redis.call('PEXPIRE', row, expire_ms)
    redis.call('PEXPIRE', log, expire_ms)
    redis.call('PEXPIRE', row .. ':resumes', expire_ms)
    redis.call('PUBLISH', TAG .. 'ended', run_id)
    return {'ended', '0', at_text}
  end

  local words = #ARGV - 15
  local written = ARGV[ITEMS] == 'did' and words == DID + INLINE and ARGV[ITEMS + DID] == 'inline' and next_pass()
    or ARGV[ITEMS] == 'did' and words == DID + END and ARGV[ITEMS + DID] == 'end' and last_pass(ITEMS + DID)
    or ARGV[ITEMS] == 'end' and words == END and last_pass(ITEMS)
  if written then return written end
end
