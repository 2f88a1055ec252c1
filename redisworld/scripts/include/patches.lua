-- Patches (redisworld/replay/patches.py): which changes of its code a run goes with. Their names stand in one field of
-- the row, separated by blanks, so that a load has them before the body begins.
local function has_patch(run, name)
  local names = run.fields.patches or redis.call('HGET', run.row, 'patches') or ''
  return string.find(' ' .. names .. ' ', ' ' .. name .. ' ', 1, true) ~= nil, names
end

local function save_patch(run, name)
  local _, names = has_patch(run, name)
  append(run, 'patched', name, '-', '', '')
  set_field(run, 'patches', names == '' and name or names .. ' ' .. name)
end
