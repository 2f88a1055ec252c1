-- Nearly all items of a batch look alike. Those are written in one go, and all others are left to the rest of the
-- script. A call without others ends there: to bring the rest into being costs more than several usual items.
local answers = {} -- by item, from 1
local MOST = 500

-- What stands in many items of a call is judged once: whether each text of this table fits.
local function judged_once(pattern)
  return setmetatable({}, {__index = function(known, text)
    known[text] = string.find(text, pattern) ~= nil
    return known[text]
  end})
end

local queues = judged_once('^steps%S*$')

-- Items of ARGV that begin with a run and a step and that fit; by run, with what the rows of those say that run:
-- {row, log, length, last_at, items: where each begins, states: of their steps}. That a run runs, and that a step has a
-- state, shows that their ids are ids.
local function usual_runs(first, stride, fits)
  local by_id, found = {}, {}
  local count = (#ARGV - first + 1) / stride
  if count > MOST or count ~= math.floor(count) then return found end
  for i = first, #ARGV, stride do
    if fits(i) then
      local id, step = ARGV[i], ARGV[i + 1]
      local run = by_id[id]
      if not run then
        run = {row = TAG .. 'run:' .. id, items = {}, steps = {}, fields = {'status', 'last_at'}, size = 0}
        by_id[id], found[#found + 1] = run, run
      end
      if not run.steps[step] then -- another delivery of the same step is looked at closely
        local size = run.size + 1
        run.steps[step], run.items[size], run.fields[2 + size], run.size = true, i, 's:' .. step, size
      end
    end
  end
  local running = {}
  for _, run in ipairs(found) do
    run.log = run.row .. ':log'
    local read, length = redis.pcall('HMGET', run.row, unpack(run.fields)), redis.pcall('LLEN', run.log)
    if read[1] == 'running' and type(length) == 'number' and #(read[2] or '') < 16 and string.find(read[2] or '', '^%d+$') then
      run.last_at, run.length, run.states = tonumber(read[2]), length, {unpack(read, 3, #run.fields)}
      running[#running + 1] = run
    end
  end
  return running
end
