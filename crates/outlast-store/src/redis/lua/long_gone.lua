-- Instances whose lease expired more than this many milliseconds ago.
local age_ms, found = tonumber(take()), {}
local leases = redis.call('HGETALL', root .. 'leases')
for n = 1, #leases, 2 do
  if tonumber(leases[n + 1]) < now_ms() - age_ms then table.insert(found, leases[n]) end
end
return found
