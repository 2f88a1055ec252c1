-- What a text is. An empty one is a number, a word and plain.
local function is_number(text) return #text <= 15 and not string.find(text, '%D') end
local function is_word(text) return not string.find(text, '%s') end
local function is_plain(text) return not string.find(text, '[%s|]') end
local function is_stream(text) return string.find(text, '^steps%S*$') or string.find(text, '^workflows%S*$') end
local function is_entry(text) return string.find(text, '^%d+%-%d+$') end

local function some_number(text) return text ~= '' and is_number(text) end

-- The number that a text is, nil where it is none: Lua takes inf, nan, 0x1 and 1e9 for numbers, too.
local function number_in(text) return text and some_number(text) and tonumber(text) or nil end
local function some_plain(text) return text ~= '' and is_plain(text) end
