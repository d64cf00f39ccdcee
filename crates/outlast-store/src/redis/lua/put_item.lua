local kind, id, version, next_version, encoded, body = take(), take(), take(), take(), take(), take()
local key = item_key(kind, id)
if (redis.call('HGET', key, 'version') or '0') ~= version then return 0 end
remove_item(kind, id)
redis.call('HSET', key, 'keys', encoded, 'version', next_version, 'body', body)
for _, entry in ipairs(item_indexes(kind, id, cjson.decode(encoded))) do redis.call('ZADD', entry[1], 0, entry[2]) end
redis.call('HINCRBY', root .. 'kinds', kind, 1)
return 1
