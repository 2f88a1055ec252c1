-- Writes what this call has decided: settled deliveries first, since Redis allows those under OOM.
local function save_all()
  save_deliveries()
  save_runs()
  save_stats()
end
