-- Dead letters, and the open runs that wait for one: the row's field parked names them, separated by blanks.
-- Not every letter parks its run: bytes that nobody can read can be replaced from the log, and a message for a step or
-- run that does not exist is one that nobody waits for.
local PARKS = {unknown_name = true, newer_spec = true, broken = true}
local MOST_PARKED = 20 -- so that a stranger's messages cannot grow a row

local function parked_by(run)
  local names = {}
  for name, ms, count in string.gmatch(redis.call('HGET', run.row, 'parked') or '', '((%d+)%-(%d+))') do
    if is_number(ms) and is_number(count) then names[#names + 1] = name end
  end
  return names
end

local function park(run, id)
  local names = parked_by(run)
  if #names >= MOST_PARKED then return end
  names[#names + 1] = id
  set_field(run, 'parked', table.concat(names, ' '))
end

local function unpark(run, id)
  local left = {}
  for _, name in ipairs(parked_by(run)) do
    if name ~= id then left[#left + 1] = name end
  end
  set_field(run, 'parked', #left > 0 and table.concat(left, ' '))
end

-- Whether a letter is older than the run, and so holds a message of an earlier one of the same id. One that the run waits for is
-- its own, whatever the clock of a replica that took over may say.
local function is_of_earlier_run(run, id)
  for _, name in ipairs(parked_by(run)) do
    if name == id then return false end
  end
  local fields, buried_at = redis.call('XRANGE', TAG .. 'dead', id, id)[1][2], nil
  for i = 1, #fields, 2 do
    if fields[i] == 'at' then buried_at = tonumber(fields[i + 1]) end
  end
  return buried_at ~= nil and buried_at < (tonumber(run.created_at) or 0)
end

local function has_letter(id) return #redis.call('XRANGE', TAG .. 'dead', id, id) > 0 end

-- Whether one of the letters is there still: somebody may have trimmed the stream by hand.
local function is_parked(run)
  for _, name in ipairs(parked_by(run)) do
    if has_letter(name) then return true end
  end
  return false
end
