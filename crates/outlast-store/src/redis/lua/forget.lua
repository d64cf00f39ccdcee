local id, me = take(), take()
if redis.call('HGET', root .. 'mail:' .. id, 'sender') == me then drop_mail(id) end
return 1
