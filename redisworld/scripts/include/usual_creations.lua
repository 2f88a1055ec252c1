-- The usual creation of steps, written in one go: a chunk of a fan-out, a whole one, or a single step. All are new, and of one
-- join group and queue. In the last chunk one may start right away under this message, and the group is sealed.
-- step: id name group target message input; inline: the same and a token; seal: group mode
if ARGV[ITEMS] == 'step' or ARGV[ITEMS] == 'inline' then
  local STEP, INLINE, SEAL, MOST = 7, 8, 3, 500
  local group, target = ARGV[ITEMS + 3], ARGV[ITEMS + 4]
  local queued, at = 0, ITEMS
  while ARGV[at] == 'step' do queued, at = queued + 1, at + STEP end
  local inline = ARGV[at] == 'inline' and at
  if inline then at = at + INLINE end
  local seal = ARGV[at] == 'seal' and at
  if seal then at = at + SEAL end
  local size, closes, is_whole = queued + (inline and 1 or 0), last == '1', at == #ARGV + 1

  local function fits_seal()
    if not closes then return last == '0' and not inline and not seal end
    if not seal then return group == '' end
    return group ~= '' and ARGV[seal + 1] == group and (ARGV[seal + 2] == 'all' or ARGV[seal + 2] == 'fail_fast')
  end

  local function fits_all()
    return is_whole and size <= MOST and fits_pass() and is_number(started_at) and some_number(chunk)
      and is_plain(group) and group ~= '-' and is_stream(target) and fits_seal()
      and (not inline or some_plain(ARGV[inline + 7]))
  end

  -- Fields of the new states, or nil where one of the steps is to be looked at closely.
  local function new_states()
    local fields, seen, names = {}, {}, {}
    for k = 1, size do
      local id, name, its_group, its_target, body = unpack(ARGV, ITEMS + (k - 1) * STEP + 1, ITEMS + (k - 1) * STEP + 5)
      if its_group ~= group or its_target ~= target or body == '' or seen[id] or not some_plain(id) then return end
      if not names[name] and not some_plain(name) then return end
      seen[id], names[name], fields[k] = true, true, 's:' .. id
    end
    return fields
  end

  local function may_begin(status, read_started_at, last_at)
    if started_at == '' then return status == 'running' end
    return status == 'pending' and not read_started_at and tonumber(started_at) >= last_at
  end

  -- Whether this chunk is the next one of its pass.
  local function comes_next(done)
    if chunk == '1' then return not is_of_pass(done) end
    return is_of_pass(done, 'chunk ' .. chunk - 1 .. ' ')
  end

  local function foreign()
    return queued > 0 and foreign_key(target, 'stream')
      or started_at ~= '' and foreign_key('index:status:pending', 'zset', 'index:status:running', 'zset')
  end

  local function write(row, log, read, stored, fields)
    local left, rest = 0, '|all|0|0'
    if read[9] then left, rest = string.match(read[9], '^(%d+)(|[%a_]+|%d|%d)$') end
    if not left or (closes and string.sub(rest, -4) ~= '|0|0') or foreign() then return end
    if add('steps_created', size) then return end -- OOM refuses it, and so all

    local began = started_at ~= '' and decimal(started_at)
    local at = decimal(math.max(clock(now), tonumber(read[2]), tonumber(started_at) or 0))
    local elements, written, stream = {}, {'last_at', at}, TAG .. target
    local function set(field, value) written[#written + 1], written[#written + 2] = field, value end
    if began then
      add('runs_started', 1)
      redis.call('ZADD', TAG .. 'index:status:running', read[6], run_id)
      redis.call('ZREM', TAG .. 'index:status:pending', run_id)
      elements[1] = 'run_started - - ' .. began .. '\n'
      set('status', 'running')
      set('started_at', began)
    end
    if group ~= '' then set('g:' .. group, decimal(left + size) .. (seal and '|' .. ARGV[seal + 2] .. '|1|0' or rest)) end

    local events, words, created, waiting = #elements, #written, ' - ' .. at .. ' ', 'pending|0|0||||' .. group .. '|'
    for k = 1, size do
      local id, name, _, _, body, input = unpack(ARGV, ITEMS + (k - 1) * STEP + 1, ITEMS + (k - 1) * STEP + 6)
      elements[events + k] = 'step_created ' .. id .. created .. name .. '\n' .. input
      written[words + 2 * k - 1], written[words + 2 * k] = fields[k], waiting .. stored + events + k .. '|0|0|0'
      if k <= queued then
        redis.call('XADD', stream, '*', 'kind', 'step', 'spec', spec, 'run', run_id, 'step', id, 'name', name,
          'msg', body)
      end
    end
    if inline then
      local id = ARGV[inline + 1]
      add('steps_started', 1)
      elements[#elements + 1] = 'step_started ' .. id .. ' 1 ' .. at .. '\n'
      written[#written] = started_state(id, ARGV[inline + 7], group, stored + #elements - 1)
      set('own:' .. message, id)
    end
    if closes then
      set('replayed_to', consumed)
      set('wake', '')
    else
      set('begun_to', consumed)
    end
    local answer = closes and {'committed', inline and '1' or '0', at} or {'chunk', '0', at}
    set('pass', pass .. ' ' .. answer[1] .. ' ' .. (closes and answer[2] or chunk) .. ' ' .. at)
    redis.call('RPUSH', log, unpack(elements))
    widen(row, size)
    redis.call('HSET', row, unpack(written))
    if closes and not inline then settle_entry() end
    return answer
  end

  local function create()
    local fields = fits_all() and new_states()
    if not fields then return end
    local row, log = row_key(run_id), log_key(run_id)
    local read = redis.pcall('HMGET', row, 'status', 'last_at', 'replayed_to', 'pass', 'started_at', 'created_at', 'deployment',
      'woken_at', 'g:' .. group, unpack(fields))
    local stored, pin = redis.pcall('LLEN', log), string.match(target, '@(.*)$')
    if read.err or type(stored) ~= 'number' or stored + size + 2 >= tonumber(limit) or read[3] ~= replayed_to
      or stored + (started_at ~= '' and 1 or 0) < tonumber(consumed)
      or not comes_next(read[4]) or not number_in(read[2]) or not may_begin(read[1], read[5], tonumber(read[2]))
      or not number_in(read[6]) or (pin and pin ~= read[7])
      or (closes and ((number_in(read[8]) or 0) > tonumber(consumed) or not holds_entry())) then return end
    for k = 10, 9 + size do
      if read[k] then return end
    end
    return write(row, log, read, stored, fields)
  end

  local written = create()
  if written then return written end
end
