-- A log has a ceiling (design section 10). The call that meets it ends the run, so that nobody has to notice later.
local function at_ceiling(run, limit) return run.length >= tonumber(limit) end

local function end_at_ceiling(run, retention_ms)
  local foreign = foreign_end(run, 'failed')
  if foreign then return foreign end
  finish_run(run, 'failed', 'MAX_EVENTS_EXCEEDED', pack_map({pack_text('type'), pack_text('RedisworldError'),
    pack_text('message'), pack_text('the log holds ' .. run.length .. ' events, which is its ceiling'),
    pack_text('code'), pack_text('MAX_EVENTS_EXCEEDED')}), tonumber(retention_ms))
  return {'full', string.format('%.0f', run.at - (tonumber(run.created_at) or run.at))}
end
