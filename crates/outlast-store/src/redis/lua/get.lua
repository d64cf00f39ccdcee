local name, id = take(), take()
local found = redis.call('HMGET', document_key(name, id), 'keys', 'seq', 'body', 'state')
if not found[1] or is_removed(cjson.decode(found[1]).conversation) then return false end
return { id, unpack(found) }
