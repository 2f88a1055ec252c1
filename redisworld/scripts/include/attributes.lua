-- Attributes: text to text, a JSON object in one field of the row, so that people and listings read them at once.
local MOST_ATTRIBUTES = 64

local function has_attributes_event(run, id)
  return id ~= '' and (run.fields['e:' .. id] or redis.call('HEXISTS', run.row, 'e:' .. id) == 1)
end

-- What to return for changes that are no JSON object of texts and nulls.
local function bad_changes(changes)
  local read, found = pcall(cjson.decode, changes)
  if not read or type(found) ~= 'table' then return refuse('changes', 'a JSON object', changes) end
  for key, value in pairs(found) do
    if type(key) ~= 'string' or (type(value) ~= 'string' and value ~= cjson.null) then
      return refuse('changes', 'a JSON object of texts and nulls', changes)
    end
  end
end

-- Merges changes (a JSON object; null takes one away) into what the run has. Answers whether they are few enough.
local function merge_attributes(run, changes)
  local all, size = run.attributes or cjson.decode(redis.call('HGET', run.row, 'attributes') or '{}'), 0
  for key, value in pairs(cjson.decode(changes)) do
    if value == cjson.null then all[key] = nil else all[key] = value end
  end
  for _ in pairs(all) do size = size + 1 end
  run.attributes = all
  return size <= MOST_ATTRIBUTES
end

local function save_attributes(run, id, payload)
  local number = append(run, 'attr_set', id == '' and '-' or id, '-', '', payload)
  set_field(run, 'attributes', next(run.attributes) and cjson.encode(run.attributes) or false)
  if id ~= '' then set_field(run, 'e:' .. id, number) end
end
