local conversation, most, found = take(), tonumber(take()), {}
for _, id in ipairs(letters(conversation, most)) do
  table.insert(found, { id, redis.call('HGET', root .. 'mail:' .. id, 'body') })
end
return found
