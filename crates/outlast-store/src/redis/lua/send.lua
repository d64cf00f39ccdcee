local id, conversation, body, me = take(), take(), take(), take()
local key = root .. 'mail:' .. id
if redis.call('EXISTS', key) == 0 then
  redis.call('HSET', key, 'conversation', conversation, 'sender', me, 'body', body)
  redis.call('ZADD', root .. 'letters:' .. conversation, redis.call('INCR', root .. 'letter'), id)
  redis.call('SADD', root .. 'waiting', conversation)
  redis.call('SADD', root .. 'sent:' .. me, id)
end
local _, holder = owner_of(conversation)
if holder then redis.call('PUBLISH', root .. 'mail', holder) end
return 1
