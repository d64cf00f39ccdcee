-- One step: returns 1 if there may be more to remove.
local conversation, first, last = take(), take(), take()
local key = root .. 'log:' .. conversation
local entries = redis.call('XRANGE', key, first, last, 'COUNT', READ_STEP)
for _, entry in ipairs(entries) do redis.call('XDEL', key, entry[1]) end
return #entries == READ_STEP and 1 or 0
