-- Arguments are judged before the first write: a call that fails half-way keeps what it has written.
-- Each function answers nil, or what the call has to return. Names and texts come in pairs; a name that ends with ?
-- may come with the empty text.
local function refuse(name, wanted, text)
  return {'broken', 'argument ' .. string.gsub(name, '?$', '') .. ' must be ' .. wanted .. ', not "' .. string.sub(text, 1, 80) .. '"'}
end

local function each(wanted, fits, ...)
  local given = {...}
  for i = 1, #given, 2 do
    local name, text = given[i], given[i + 1]
    if text == '' then
      if string.sub(name, -1) ~= '?' then return refuse(name, wanted, text) end
    elseif not fits(text) then
      return refuse(name, wanted, text)
    end
  end
end

local function numbers(...) return each('a whole number of at most 15 digits', is_number, ...) end
local function words(...) return each('a word without blanks', is_word, ...) end
local function plain(...) return each('a word without blanks and |', is_plain, ...) end
local function streams(...) return each('a stream of steps or workflows', is_stream, ...) end
local function entries(...) return each('an entry id', is_entry, ...) end

local function one_of(name, text, ...)
  for _, word in ipairs({...}) do
    if text == word then return end
  end
  return refuse(name, 'one of ' .. table.concat({...}, ' '), text)
end

local function arity(count)
  if #ARGV ~= count then return {'broken', 'takes ' .. count .. ' arguments, not ' .. #ARGV} end
end

-- ARGV from first on: whole items of this size, at least one.
local function whole_items(first, size)
  local found = #ARGV - first + 1
  if found >= size and found % size == 0 then return end
  return {'broken', 'takes items of ' .. size .. ' arguments, not ' .. found .. ' arguments'}
end
