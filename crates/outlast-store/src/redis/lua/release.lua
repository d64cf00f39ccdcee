local conversation, fence, me = take(), take(), take()
local owned, holder = owner_of(conversation)
if owned == fence and holder == me then evict(conversation) end
return #letters(conversation, 1)
