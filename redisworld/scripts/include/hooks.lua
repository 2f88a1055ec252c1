-- The state of a hook: claiming (its token is being claimed) | open | conflict | disposed.
-- Tokens live in partitions of their own, where a script of this run does not reach: what holds a token stands in a
-- hash beside the row, and what gives one up in the partition's releases, which the retention loop works off.
-- A token's pointer counts only while the row it points to shows the hook claiming or open: a release can be late.
local function hooks_key(run) return run.row .. ':hooks' end

local function hook_state(run, id)
  return run.fields['h:' .. id] or redis.call('HGET', run.row, 'h:' .. id)
end

-- Whether the hook holds this token. A pointer may be an earlier run's, which had the same id, and so had its hooks; of which
-- token a hook is when somebody has deleted the hash, only its pointer tells.
local function holds_token(run, id, token)
  local held = redis.call('HGET', hooks_key(run), id)
  return not held or held == token
end

local function release_token(run, id)
  local token = redis.call('HGET', hooks_key(run), id)
  if not token then return end
  redis.call('HSET', TAG .. 'releases', run.id .. ' ' .. id, token)
  redis.call('HDEL', hooks_key(run), id)
end

local function release_hooks(run)
  local held = redis.call('HGETALL', hooks_key(run))
  if #held == 0 then return end
  for i = 1, #held, 2 do held[i] = run.id .. ' ' .. held[i] end
  push_all('HSET', TAG .. 'releases', held)
  redis.call('UNLINK', hooks_key(run))
end

-- holder is the run that the token's pointer names instead, '' when it names this hook.
local function create_hook(run, id, token, metadata, holder)
  if holder == '' then
    append(run, 'hook_created', id, '-', token, metadata)
    set_field(run, 'h:' .. id, 'open')
  else
    append(run, 'hook_conflict', id, '-', holder, '')
    set_field(run, 'h:' .. id, 'conflict')
    release_token(run, id) -- another pass may have found the token free meanwhile
  end
end

local function dispose_hook(run, id)
  append(run, 'hook_disposed', id, '-', '', '')
  set_field(run, 'h:' .. id, 'disposed')
  release_token(run, id)
end
