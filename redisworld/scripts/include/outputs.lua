-- The output streams of a run have no TTL, since the hash that lists them has to outlive none of them. Nobody's once the row has
-- gone, they would be taken for those of a run that begins under the same id: its steps have the ids that the earlier ones had.
local function delete_outputs(row)
  local names = redis.pcall('HGET', row .. ':outs', 'names') -- a foreign key in the place of the names lists none of ours
  if type(names) == 'string' then
    for name in string.gmatch(names, '%S+') do redis.call('UNLINK', row .. ':out:' .. name) end
  end
  redis.call('UNLINK', row .. ':outs')
end
