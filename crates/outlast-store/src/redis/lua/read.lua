local conversation, after, most = take(), take(), tonumber(take())
local found, more = records(conversation, after, math.min(most, READ_BYTES))
return { found, more }
