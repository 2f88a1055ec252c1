-- As much of msgpack as a wake needs: text, whole numbers, maps of up to 15 pairs.
local function pack_text(text)
  local n = #text
  if n < 32 then return string.char(160 + n) .. text end
  if n < 256 then return string.char(217, n) .. text end
  return string.char(218, math.floor(n / 256), n % 256) .. text
end

local function pack_number(value)
  local bytes = {}
  for i = 8, 1, -1 do
    bytes[i] = value % 256
    value = math.floor(value / 256)
  end
  return string.char(207, unpack(bytes))
end

local function pack_map(pairs_in_order)
  return string.char(128 + #pairs_in_order / 2) .. table.concat(pairs_in_order)
end
