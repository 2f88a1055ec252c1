-- The time of this call in epoch ms: Redis TIME, or what a test pins.
local function clock(pinned)
  if pinned ~= '' then return tonumber(pinned) end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
