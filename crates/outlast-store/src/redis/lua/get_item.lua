local kind, id = take(), take()
local found = redis.call('HMGET', item_key(kind, id), 'keys', 'version', 'body')
if not found[1] then return false end
return { id, unpack(found) }
