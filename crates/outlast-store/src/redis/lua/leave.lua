-- One step. The lease ends with the first, so from then on others may take over.
local instance = take()
redis.call('HDEL', root .. 'leases', instance)
for _, conversation in ipairs(redis.call('SPOP', root .. 'held:' .. instance, SCAN_STEP)) do
  local _, holder = owner_of(conversation)
  if holder == instance then redis.call('HDEL', root .. 'owners', conversation) end
end
for _, id in ipairs(redis.call('SPOP', root .. 'sent:' .. instance, SCAN_STEP)) do drop_mail(id) end
local left = redis.call('EXISTS', root .. 'held:' .. instance, root .. 'sent:' .. instance)
if left == 0 then redis.call('PUBLISH', root .. 'mail', '*') end
return left
