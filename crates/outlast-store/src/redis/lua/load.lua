-- One script, so that everything is of one moment.
local conversation, messages, most = take(), tonumber(take()), tonumber(take())
local found = redis.call('HMGET', document_key('conversations', conversation), 'keys', 'seq', 'body', 'state')
if not found[1] or is_removed(cjson.decode(found[1]).conversation) then return false end
local index = root .. 'messages:of:' .. conversation
local newest, high = {}, '+'
-- Only the messages of one conversation are in this index, and all of them match.
repeat
  local page, rest = list('messages', index, true, '-', high, {}, messages - #newest, most, '')
  for _, document in ipairs(page) do
    table.insert(newest, document)
    most = most - #document[4]
  end
  high = rest and '(' .. rest
until not high or #newest > messages or most < 0
return { { conversation, unpack(found) }, newest, (records(conversation, found[2], math.huge)), end_of(conversation) }
