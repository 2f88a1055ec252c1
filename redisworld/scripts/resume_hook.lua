-- resume_hook: hands a payload to an open hook, once per resume id, and wakes its run.
-- @key stats            hash: counters of the partition
-- @derived row log hooks resumes streams indexes expiring releases
-- @arg now              pinned time in ms, or '' for Redis TIME
-- @arg run_id
-- @arg hook_id          or '': only a resume id that is known already is answered
-- @arg token            the one the caller named
-- @arg resume_id
-- @arg digest           of the payload
-- @arg payload
-- @arg limit            events a log may hold
-- @arg retention        ms a finished run stays
-- @returns received number | conflict | gone status | full age_in_ms | not_found | broken why
-- @include partition words arguments clock types counter stats run hooks msgpack messages wake retention finish ceiling
local now, run_id, hook_id, token, resume_id, digest, payload, limit, retention = unpack(ARGV)

local refused = arity(9) or plain('run_id', run_id, 'hook_id?', hook_id, 'digest', digest)
  or words('token', token, 'resume_id', resume_id)
  or numbers('now?', now, 'limit', limit, 'retention', retention)
if refused then return refused end

local run = open_run(run_id, clock(now))
if run.broken then return run.broken end
if run.absent then return {'not_found'} end
local foreign = foreign_key('stats', 'hash', 'run:' .. run_id .. ':resumes', 'hash', 'run:' .. run_id .. ':hooks', 'hash',
  'workflows' .. run.pin, 'stream')
if foreign then return foreign end

-- Whether the log has the event: the hash may be all that a DEL of row and log has left of an earlier run.
local function is_logged(known)
  local number = string.match(known, '^%d+')
  if not number or not is_number(number) then return true end -- a stranger's: a conflict
  local element = redis.call('LINDEX', run.log, number - 1)
  return string.match(element or '', '^hook_received %S+ %- %d+ (%S+)\n') == resume_id
end

local resumes = run.row .. ':resumes'
local known = redis.call('HGET', resumes, resume_id)
if known and is_logged(known) then -- also after the hook was disposed, or the run has ended
  local number, rest = string.match(known, '^(%d+)|(.*)$')
  if rest == digest .. '|' .. token then return {'received', number} end
  return {'conflict'}
end
if run.terminal then return {'gone', run.status} end
if hook_id == '' or hook_state(run, hook_id) ~= 'open' or not holds_token(run, hook_id, token) then return {'not_found'} end
local answer
if at_ceiling(run, limit) then
  answer = end_at_ceiling(run, retention)
else
  local number = append(run, 'hook_received', hook_id, '-', resume_id, payload)
  redis.call('HSET', resumes, resume_id, number .. '|' .. digest .. '|' .. token)
  observe(run, 'hook', '', false)
  count('hooks_received')
  answer = {'received', tostring(number)}
end
save_run(run)
save_stats()
return answer
