-- Publishing: clear fields that people read with XRANGE, and the whole message in one field.
-- A message here is {kind, run, step, name, spec, reason, body}; step and reason may be ''.
local function publish(stream, message, at)
  if message.kind == 'step' and message.reason == '' then -- the hot path
    return redis.call('XADD', TAG .. stream, '*', 'kind', 'step', 'spec', message.spec, 'run', message.run,
      'step', message.step, 'name', message.name, 'msg', message.body)
  end
  local fields = {'kind', message.kind, 'spec', message.spec, 'run', message.run}
  local function add(field, value)
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  if message.step ~= '' then add('step', message.step) end
  add('name', message.name)
  if message.reason ~= '' then add('reason', message.reason) end
  add('at', string.format('%.0f', at)) -- the body time of a first pass
  add('msg', message.body)
  return redis.call('XADD', TAG .. stream, '*', unpack(fields))
end

-- What waits in the delayed set: '<kind> <run> <id>' by due time. Timers have no body.
-- Tells the timer loops when something is due earlier than all that they know of.
local function add_delayed(due, member, body)
  local first = redis.call('ZRANGE', TAG .. 'delayed', 0, 0, 'WITHSCORES')
  redis.call('ZADD', TAG .. 'delayed', due, member)
  if body then redis.call('HSET', TAG .. 'delayed:body', member, body) end
  if not first[2] or tonumber(first[2]) > due then
    redis.call('XADD', TAG .. 'nudge', 'MAXLEN', 1, '*', 'due', string.format('%.0f', due))
  end
end

local function delay(due, id, target, message)
  local function word(text) return text == '' and '-' or text end
  local header = table.concat({target, word(message.step), word(message.name), word(message.spec), word(message.reason)}, ' ')
  add_delayed(due, message.kind .. ' ' .. message.run .. ' ' .. id, header .. '\n' .. message.body)
end

-- The message of a delayed member and its target stream; nil where the body is none of ours.
local function read_delayed(kind, run_id, body)
  local target, step, name, spec, reason, message = string.match(body, '^(%S+) (%S+) (%S+) (%S+) (%S+)\n(.*)$')
  if not target or not run_id then return nil end
  local function text(word) return word == '-' and '' or word end
  return {kind = kind, run = run_id, step = text(step), name = text(name), spec = text(spec), reason = text(reason),
    body = message, target = target}
end
