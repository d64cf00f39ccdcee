local me, found = take(), {}
for _, conversation in ipairs(redis.call('SINTER', root .. 'waiting', root .. 'held:' .. me)) do
  if #letters(conversation, 1) > 0 then table.insert(found, conversation) end
end
table.sort(found)
return found
