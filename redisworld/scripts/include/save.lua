-- Writes what this call has decided: settled deliveries first, since Redis allows those under OOM.
local function save_all()
  save_deliveries()
  for _, run in pairs(opened) do
    if not run.broken and not run.absent then save_run(run) end
  end
  save_stats()
end
