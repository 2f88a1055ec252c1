-- The usual pass of a row of steps: the inline step that this message owns has ended, nothing else has happened, and the
-- body asks for one more, which starts. Written in one go; any other pass is left to the rest of the script.
local DID, INLINE, END = 15, 22, 29 -- did: step token outcome length at payload; inline: id name group target message input token

local function digits(text) return #text < 16 and string.find(text, '^%d+$') end
local function word(text) return string.find(text, '^[^%s|]+$') end

-- Judged in the order of what it costs; what is compared with the row needs no other judgement.
local function next_in_row()
  local now, consumer, run_id, replayed_to, consumed, message, stream, entry, pass, last, limit, retention, spec, started_at =
    unpack(ARGV, 1, 14)
  local step, token, outcome, length, ended_at, payload = unpack(ARGV, DID + 1, DID + 6)
  local id, name, group, target, body, input, next_token = unpack(ARGV, INLINE + 1, INLINE + 7)
  if last ~= '1' or started_at ~= '' or outcome ~= 'completed' or group ~= '' or body == '' or id == step
    or not (now == '' or digits(now)) or not (digits(limit) and digits(retention) and digits(spec) and digits(ended_at))
    or not (word(pass) and word(id) and word(name) and word(next_token)) or not string.find(target, '^steps%S*$')
    or not (string.find(stream, '^steps%S*$') or string.find(stream, '^workflows%S*$')) then return end

  local row, log, own = TAG .. 'run:' .. run_id, TAG .. 'run:' .. run_id .. ':log', 'own:' .. message
  local read = redis.pcall('HMGET', row, 'status', 'last_at', 'replayed_to', 'pass', own, 's:' .. step, 's:' .. id)
  local stored = redis.pcall('LLEN', log)
  if read[1] ~= 'running' or read[3] ~= replayed_to or read[5] ~= step or read[7] or type(stored) ~= 'number'
    or string.format('%.0f', stored) ~= length or string.format('%.0f', stored + 1) ~= consumed or stored + 3 > tonumber(limit)
    or string.sub(read[4] or '', 1, #pass + 1) == pass .. ' ' then return end
  local input_at, started = string.match(read[6] or '', '^running|1|0|[^|]*|[^|]*|[^|]*||(%d+)|0|0|(%d+)$')
  if not input_at or string.sub(read[6], 13, 13 + #token) ~= token .. '|' then return end
  local held = redis.pcall('XPENDING', TAG .. stream, 'workers', entry, entry, 1, consumer)
  if held.err or not held[1] then return end
  if type(redis.pcall('HINCRBY', TAG .. 'stats', 'steps_completed', 1)) ~= 'number' then return end -- OOM refuses it, and so all

  redis.call('HINCRBY', TAG .. 'stats', 'steps_created', 1)
  redis.call('HINCRBY', TAG .. 'stats', 'steps_started', 1)
  local then_ms = math.max(tonumber(ended_at), tonumber(read[2]) or 0) -- what the body has taken for the time of the end
  local now_text = string.format('%.0f', math.max(clock(now), then_ms))
  local place = entry .. (stream == 'steps' and '' or stream == 'workflows' and '/w' or '/' .. stream)
  redis.call('RPUSH', log, 'step_completed ' .. step .. ' 1 ' .. string.format('%.0f', then_ms) .. '\n' .. payload,
    'step_created ' .. id .. ' - ' .. now_text .. ' ' .. name .. '\n' .. input, 'step_started ' .. id .. ' 1 ' .. now_text .. '\n')
  redis.call('HSET', row, 's:' .. step, 'completed|1|0|' .. token .. '||||' .. input_at .. '|0|0|' .. started,
    's:' .. id, 'running|1|0|' .. next_token .. '|' .. (message == id and '' or message) .. '|' .. place .. '||' .. stored + 2
    .. '|0|0|' .. stored + 3, 'woken_at', stored + 1, 'wake', '', 'replayed_to', consumed, own, id,
    'pass', pass .. ' committed 1 ' .. now_text, 'last_at', now_text)
  return {'committed', '1', now_text}
end

local written = #ARGV == END and ARGV[DID] == 'did' and ARGV[INLINE] == 'inline' and next_in_row()
if written then return written end
