local fence, latest = take(), redis.call('GET', root .. 'fence') or '0'
-- Fences are compared as text, because numbers lose digits here.
if #fence > #latest or (#fence == #latest and fence > latest) then
  redis.call('SET', root .. 'fence', fence)
  latest = fence
end
return latest
