-- One step of removing the documents of a deleted conversation: returns 1 if there may be more.
local conversation = take()
if not is_removed(conversation) then return 0 end
for _, name in ipairs({ 'conversations', 'generations', 'messages' }) do
  local members = redis.call('ZRANGE', root .. name .. ':of:' .. conversation, 0, SCAN_STEP - 1)
  for _, member in ipairs(members) do remove_document(name, string.sub(member, SORT_KEY + 1)) end
  if #members == SCAN_STEP then return 1 end
end
redis.call('SREM', root .. 'removals', conversation)
return 0
