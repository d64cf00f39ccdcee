local me, lease_ms = take(), tonumber(take())
redis.call('HSET', root .. 'leases', me, digits(now_ms() + lease_ms))
return 1
