-- How a step's state names an entry, and the group through which all streams are read.
local GROUP = 'workers'

-- An entry id is unique in its stream only. The two usual streams are written short: a state beyond 64 bytes would
-- turn the whole row into a hash table of several times its size.
local function entry_name(stream, entry)
  if stream == 'steps' or entry == '' then return entry end
  return entry .. (stream == 'workflows' and '/w' or '/' .. stream)
end
