local kind, index, order, low, high = take(), root .. take(), take(), take(), take()
local filter, limit, most = cjson.decode(take()), tonumber(take()), tonumber(take())
local found, size = {}, 0
local rest = scan(index, order == 'newest', low, high, function(id)
  local stored = redis.call('HMGET', item_key(kind, id), 'keys', 'version', 'body')
  if filter.user and filter.user ~= cjson.decode(stored[1]).user then return false end
  table.insert(found, { id, unpack(stored) })
  size = size + #stored[3]
  return #found > limit or (size > most and #found > 1)
end)
return { found, rest }
