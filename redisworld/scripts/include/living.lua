-- Whether a message lives: in the delayed set, or in a stream, where a worker will get it. A call cannot look through
-- long streams. So its caller has looked through them, page by page, and says how far: entry ids only grow, so what the
-- caller has not found can only stand behind that place now, or be delayed. Both are looked at here, in one moment.
local MOST_NEW = 200 -- entries behind the place; where there are more, the caller looks on and asks again

-- 'lives', 'unsure', or nil. fits(fields) knows the message by the fields of its entry.
local function behind(places, fits)
  for _, place in ipairs(places) do
    local found = redis.call('XRANGE', TAG .. place.stream, '(' .. place.entry, '+', 'COUNT', MOST_NEW + 1)
    for _, item in ipairs(found) do
      local fields = {}
      for i = 1, #item[2], 2 do fields[item[2][i]] = item[2][i + 1] end
      if fits(fields) then return 'lives' end
    end
    if #found > MOST_NEW then return 'unsure' end
  end
end

local function is_delayed(run_id, id)
  for _, kind in ipairs({'step ', 'workflow '}) do
    if id ~= '' and redis.call('ZSCORE', TAG .. 'delayed', kind .. run_id .. ' ' .. id) then return true end
  end
  return false
end

-- Whether the bytes of a message hold this text field.
local function holds_text(body, name, text)
  return string.find(body or '', pack_text(name) .. pack_text(text), 1, true) ~= nil
end

-- The places from ARGV[first] on: pairs of stream and entry; nil and the answer of a call that must not be.
local function read_places(first)
  local places, refused = {}, whole_items(first, 2)
  if refused then return nil, refused end
  for i = first, #ARGV, 2 do
    refused = refused or streams('stream', ARGV[i]) or entries('entry', ARGV[i + 1]) or foreign_key(ARGV[i], 'stream')
    places[#places + 1] = {stream = ARGV[i], entry = ARGV[i + 1]}
  end
  if refused then return nil, refused end
  return places
end
