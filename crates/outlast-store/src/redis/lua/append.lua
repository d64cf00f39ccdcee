-- Everything is checked before the first write, because Redis undoes nothing.
local conversation, fence, expected, last, me = take(), take(), take(), take(), take()

local function take_list(read)
  local found = {}
  for n = 1, tonumber(take()) do found[n] = read() end
  return found
end

local lines = take_list(function() return { take(), take() } end)
local changes = take_list(function()
  local change = { put = take() == 'put', name = take(), id = take() }
  if change.put then
    change.keys, change.seq, change.body = take(), take(), take()
    change.state = take() == 'state' and take() or nil
  end
  return change
end)
local replies = take_list(function() return { take(), take() } end)
local limits = take_list(function()
  local limit = { name = take(), at_most = tonumber(take()) }
  limit.user = take() == 'user' and take() or nil
  limit.statuses = take_list(take)
  return limit
end)

local owned, holder = owner_of(conversation)
if owned ~= fence or holder ~= me then return { 'fenced', owned or redis.call('GET', root .. 'fence') or '0' } end
local stands = end_of(conversation)
if stands ~= expected then return { 'conflict', stands } end

-- What documents look like after the changes so far; `false` for a removed one.
local changed = {}
local function keys_now(change)
  local known = changed[pair(change.name, change.id)]
  if known ~= nil then return known end
  return stored_keys(change.name, change.id) or false
end
local difference = {}
local function differ(name, keys, by)
  if not keys then return end
  for _, field in ipairs({ counted(name, nil, keys.status), counted(name, keys.user, keys.status) }) do
    difference[field] = (difference[field] or 0) + by
  end
end
for _, change in ipairs(changes) do
  local before = keys_now(change)
  if change.put and change.name == 'conversations' and not change.state and not before then
    return { 'stateless', change.id }
  end
  local after = change.put and cjson.decode(change.keys)
  differ(change.name, before, -1)
  differ(change.name, after, 1)
  changed[pair(change.name, change.id)] = after
end
for position, limit in ipairs(limits) do
  local total = 0
  for _, status in ipairs(limit.statuses) do
    local field = counted(limit.name, limit.user, status)
    total = total + (redis.call('HGET', root .. 'counts', field) or 0) + (difference[field] or 0)
  end
  if total > limit.at_most then return { 'over', digits(position - 1) } end
end

for _, line in ipairs(lines) do
  redis.call('XADD', root .. 'log:' .. conversation, line[1] .. '-0', 'e', line[2])
end
if #lines > 0 then redis.call('HSET', root .. 'ends', conversation, last) end
for _, change in ipairs(changes) do
  if change.put then
    put_document(change.name, change.id, change.keys, change.seq, change.body, change.state)
  else
    remove_document(change.name, change.id)
  end
end
for _, reply in ipairs(replies) do
  local mail = redis.call('HMGET', root .. 'mail:' .. reply[1], 'conversation', 'sender', 'reply')
  if mail[1] and not mail[3] then
    redis.call('HSET', root .. 'mail:' .. reply[1], 'reply', reply[2])
    take_letter(reply[1], mail[1])
    redis.call('PUBLISH', root .. 'mail', mail[2])
  end
end
if #lines > 0 then redis.call('PUBLISH', root .. 'log', me .. ' ' .. last .. ' ' .. conversation) end
return { 'written', last }
