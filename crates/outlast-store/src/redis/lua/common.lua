-- What every script shares. All keys begin with KEYS[1], whose hash tag keeps them in one slot of a cluster.
-- Sequence numbers and fences stay strings, because Lua's numbers lose digits beyond 2^53.
local root = KEYS[1]

-- Members of an index are this many hexadecimal digits of the sort key, then the id.
local SORT_KEY = 16
-- A script looks at no more index entries than this; its caller asks again for the rest.
local SCAN_STEP = 256
-- A script returns about this many bytes of records; its caller asks again for the rest.
local READ_BYTES = 1048576
local READ_STEP = 32
local MAIL_STEP = 64

-- Two strings as one, so that no other two give the same.
local function pair(a, b) return #a .. ':' .. a .. ':' .. b end

local function digits(number) return string.format('%.0f', number) end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function is_live(instance)
  local expires = redis.call('HGET', root .. 'leases', instance)
  return expires and tonumber(expires) > now_ms()
end

-- The fence and the instance of a conversation's owner, or nil.
local function owner_of(conversation)
  local owner = redis.call('HGET', root .. 'owners', conversation)
  if not owner then return nil end
  local at = string.find(owner, ' ', 1, true)
  return string.sub(owner, 1, at - 1), string.sub(owner, at + 1)
end

local function evict(conversation)
  local _, holder = owner_of(conversation)
  if not holder then return end
  redis.call('HDEL', root .. 'owners', conversation)
  redis.call('SREM', root .. 'held:' .. holder, conversation)
end

local function end_of(conversation) return redis.call('HGET', root .. 'ends', conversation) or '0' end

-- Documents whose conversation is being removed are already invisible.
local function is_removed(conversation)
  return redis.call('SISMEMBER', root .. 'removals', conversation) == 1
end

local function document_key(name, id) return root .. name .. ':doc:' .. id end

-- Messages are only ever looked for by conversation, so they do without the other indexes. Which tables have
-- which index is also written in documents.rs, which picks one.
local function indexes(name, id, keys)
  local member, prefix = keys.order .. id, root .. name
  local found = { { prefix .. ':all', member }, { prefix .. ':of:' .. keys.conversation, member } }
  if name == 'messages' then return found end
  table.insert(found, { prefix .. ':user:' .. keys.user, member })
  table.insert(found, { prefix .. ':status:' .. keys.status, member })
  table.insert(found, { prefix .. ':user_status:' .. pair(keys.user, keys.status), member })
  if keys.request ~= '' then
    table.insert(found, { prefix .. ':request:' .. pair(keys.conversation, keys.request), member })
  end
  for _, tag in ipairs(keys.tags) do
    table.insert(found, { prefix .. ':tag:' .. pair(keys.user, tag), member })
  end
  if keys.due then table.insert(found, { prefix .. ':due', keys.due .. id }) end
  return found
end

local function counted(name, user, status)
  if user then return pair(name, pair(status, user)) end
  return pair(name, status)
end

local function count(name, keys, by)
  for _, field in ipairs({ counted(name, nil, keys.status), counted(name, keys.user, keys.status) }) do
    if redis.call('HINCRBY', root .. 'counts', field, by) == 0 then
      redis.call('HDEL', root .. 'counts', field)
    end
  end
end

local function stored_keys(name, id)
  local keys = redis.call('HGET', document_key(name, id), 'keys')
  return keys and cjson.decode(keys), keys
end

local function unindex(name, id, keys)
  for _, entry in ipairs(indexes(name, id, keys)) do redis.call('ZREM', entry[1], entry[2]) end
  count(name, keys, -1)
end

local function remove_document(name, id)
  local keys = stored_keys(name, id)
  if not keys then return end
  unindex(name, id, keys)
  redis.call('UNLINK', document_key(name, id))
end

local function put_document(name, id, encoded, seq, body, state)
  local old, old_encoded = stored_keys(name, id)
  if old_encoded ~= encoded then
    if old then unindex(name, id, old) end
    local keys = cjson.decode(encoded)
    for _, entry in ipairs(indexes(name, id, keys)) do redis.call('ZADD', entry[1], 0, entry[2]) end
    count(name, keys, 1)
  end
  local key = document_key(name, id)
  redis.call('HSET', key, 'keys', encoded, 'body', body)
  if state then redis.call('HSET', key, 'seq', seq, 'state', state)
  elseif name ~= 'conversations' then redis.call('HSET', key, 'seq', seq) end
end

-- Records after a position as {seq, bytes, …}, and whether there may be more.
local function records(conversation, after, most)
  local found, size, from = {}, 0, after
  while true do
    local entries = redis.call('XRANGE', root .. 'log:' .. conversation, '(' .. from, '+', 'COUNT', READ_STEP)
    for _, entry in ipairs(entries) do
      local seq = string.sub(entry[1], 1, string.find(entry[1], '-', 1, true) - 1)
      table.insert(found, seq)
      table.insert(found, entry[2][2])
      size, from = size + #entry[2][2], seq
      if size > most then return found, 1 end
    end
    if #entries < READ_STEP then return found, 0 end
  end
end

-- Calls visit(id) for the members of an index until it returns true. Returns the last member if there may be more.
local function scan(index, newest_first, low, high, visit)
  local members
  if newest_first then
    members = redis.call('ZREVRANGEBYLEX', index, high, low, 'LIMIT', 0, SCAN_STEP)
  else
    members = redis.call('ZRANGEBYLEX', index, low, high, 'LIMIT', 0, SCAN_STEP)
  end
  for _, member in ipairs(members) do
    if visit(string.sub(member, SORT_KEY + 1)) then return false end
  end
  return #members == SCAN_STEP and members[#members]
end

-- The documents of an index that match, one more than fits, as {id, keys, seq, body}.
local function list(name, index, newest_first, low, high, filter, limit, most, me)
  local found, size = {}, 0
  local removing = redis.call('SCARD', root .. 'removals') > 0
  local function is_tagged(keys)
    for _, tag in ipairs(keys.tags) do
      if tag == filter.tag then return true end
    end
    return false
  end
  local function matches(keys)
    if filter.user and filter.user ~= keys.user then return false end
    if filter.conversation and filter.conversation ~= keys.conversation then return false end
    if filter.request and filter.request ~= keys.request then return false end
    if filter.tag and not is_tagged(keys) then return false end
    if filter.statuses and not filter.statuses[keys.status] then return false end
    if removing and is_removed(keys.conversation) then return false end
    if filter.unowned then
      local _, holder = owner_of(keys.conversation)
      if holder and (holder == me or is_live(holder)) then return false end
    end
    return true
  end
  local rest = scan(index, newest_first, low, high, function(id)
    local keys, encoded = stored_keys(name, id)
    if not keys or not matches(keys) then return false end
    local stored = redis.call('HMGET', document_key(name, id), 'seq', 'body')
    table.insert(found, { id, encoded, stored[1], stored[2] })
    size = size + #stored[2]
    return #found > limit or (size > most and #found > 1)
  end)
  return found, rest
end

-- At most this much unanswered mail whose sender has a lease, oldest first, as ids.
local function letters(conversation, most)
  local found, at = {}, 0
  while #found < most do
    local ids = redis.call('ZRANGE', root .. 'letters:' .. conversation, at, at + MAIL_STEP - 1)
    for _, id in ipairs(ids) do
      if #found < most and is_live(redis.call('HGET', root .. 'mail:' .. id, 'sender')) then
        table.insert(found, id)
      end
    end
    if #ids < MAIL_STEP then break end
    at = at + MAIL_STEP
  end
  return found
end

-- Takes mail off the list of what waits for an answer.
local function take_letter(id, conversation)
  redis.call('ZREM', root .. 'letters:' .. conversation, id)
  if redis.call('EXISTS', root .. 'letters:' .. conversation) == 0 then
    redis.call('SREM', root .. 'waiting', conversation)
  end
end

local function drop_mail(id)
  local mail = redis.call('HMGET', root .. 'mail:' .. id, 'conversation', 'sender')
  if not mail[1] then return end
  take_letter(id, mail[1])
  redis.call('SREM', root .. 'sent:' .. mail[2], id)
  redis.call('UNLINK', root .. 'mail:' .. id)
end

local at = 0
local function take() at = at + 1 return ARGV[at] end
