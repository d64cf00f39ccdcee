local name, index, order, low, high = take(), root .. take(), take(), take(), take()
local filter, limit, most, me = cjson.decode(take()), tonumber(take()), tonumber(take()), take()
local found, rest = list(name, index, order == 'newest', low, high, filter, limit, most, me)
return { found, rest }
