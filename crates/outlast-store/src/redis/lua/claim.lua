local conversation, me = take(), take()
if is_removed(conversation) then return { 'removing', '' } end
local _, holder = owner_of(conversation)
if holder and holder ~= me then
  if is_live(holder) then return { 'held', holder } end
  redis.call('SREM', root .. 'held:' .. holder, conversation)
end
redis.call('INCR', root .. 'fence')
local fence = redis.call('GET', root .. 'fence')
redis.call('HSET', root .. 'owners', conversation, fence .. ' ' .. me)
redis.call('SADD', root .. 'held:' .. me, conversation)
return { 'yours', fence }
