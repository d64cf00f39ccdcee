local me, found = take(), {}
for _, instance in ipairs(redis.call('HKEYS', root .. 'leases')) do
  if instance ~= me and is_live(instance) then table.insert(found, instance) end
end
table.sort(found)
return found
