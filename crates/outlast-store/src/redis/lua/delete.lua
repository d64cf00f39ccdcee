-- The conversation is invisible from here on; its documents are removed in steps.
local conversation, me = take(), take()
evict(conversation)
redis.call('HDEL', root .. 'ends', conversation)
redis.call('UNLINK', root .. 'log:' .. conversation)
redis.call('SADD', root .. 'removals', conversation)
redis.call('PUBLISH', root .. 'log', me .. ' 0 ' .. conversation)
return 1
