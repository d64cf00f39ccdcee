-- Shared by the scripts for items.
local function item_key(kind, id) return root .. 'item:' .. pair(kind, id) end

local function item_indexes(kind, id, keys)
  local found = {
    { root .. 'items:all:' .. kind, keys.order .. id },
    { root .. 'items:user:' .. pair(kind, keys.user), keys.order .. id },
  }
  if keys.due then table.insert(found, { root .. 'items:due:' .. kind, keys.due .. id }) end
  return found
end

local function remove_item(kind, id)
  local keys = redis.call('HGET', item_key(kind, id), 'keys')
  if not keys then return 0 end
  for _, entry in ipairs(item_indexes(kind, id, cjson.decode(keys))) do redis.call('ZREM', entry[1], entry[2]) end
  redis.call('UNLINK', item_key(kind, id))
  if redis.call('HINCRBY', root .. 'kinds', kind, -1) == 0 then redis.call('HDEL', root .. 'kinds', kind) end
  return 1
end
