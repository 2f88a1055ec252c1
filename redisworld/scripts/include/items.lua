-- What a pass asks for, read and judged before anything is written. An item is
-- step|inline: id name group target message input [token] · wait: id due · unwait: id · seal: group mode
-- · assign: step group · end: kind code payload
local SIZES = {step = 7, inline = 8, wait = 3, unwait = 2, seal = 3, assign = 3, ['end'] = 4}

local function read_step_item(run, item, at, is_last)
  item.name, item.group, item.target = ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  item.message, item.input, item.token = ARGV[at + 5], ARGV[at + 6], ARGV[at + 7]
  if item.op == 'inline' and not is_last then return {'broken', 'an inline item belongs into the last chunk'} end
  local step = open_step(run, item.id)
  if not step then return end
  item.exists = true
  local name = string.match(read_element(run, step.input), '^step_created %S+ %S+ %d+ (%S+)$')
  if name == item.name then return end
  return {'diverged', 'the log has step_created ' .. item.id .. ' ' .. (name or '?') .. ', the code asks for step ' .. item.name}
end

local function cannot_be_read(run, item)
  if item.group and grouped(item.group) and not open_group(run, item.group) then return true end
  local step = (item.exists or item.op == 'assign') and open_step(run, item.id)
  return step and unreadable(run, step)
end

-- The items from ARGV[at] on; or nil and the answer of a commit that must not be.
local function read_items(run, at, is_last)
  local items, streams = {}, {}
  while at <= #ARGV do
    local op = ARGV[at]
    if not SIZES[op] then return nil, {'broken', 'unknown item ' .. op} end
    local item = {op = op, id = ARGV[at + 1]}
    local refusal
    if op == 'step' or op == 'inline' then
      refusal = read_step_item(run, item, at, is_last)
      if not streams[item.target] then
        streams[item.target] = true
        refusal = refusal or foreign_key(item.target, 'stream')
      end
    else
      item.a, item.b = ARGV[at + 2], ARGV[at + 3]
      if op == 'seal' then item.group = item.id elseif op == 'assign' then item.group = item.a end
      if op == 'end' then refusal = foreign_key('expiring', 'zset', 'index:status:' .. string.sub(item.id, 5), 'zset') end
    end
    if not refusal and cannot_be_read(run, item) then
      refusal = {'broken', 'the state of step or join group ' .. item.id .. ' cannot be read'}
    end
    if refusal then return nil, refusal end
    items[#items + 1] = item
    at = at + SIZES[op]
  end
  return items
end
