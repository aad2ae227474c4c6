-- Every idempotency key that means one of these jobs.
local found = {}
for _, id in ipairs(A.ids) do
  local v = call('HMGET', of(id), 'ik', 'iks')
  for _, key in ipairs(names_of(id, v[1], v[2], -1)) do
    local v = call('HGET', P .. 'k', key)
    if v and string.sub(v, 1, 36) == id then found[#found + 1] = {key, id, string.sub(v, 37)} end
  end
end
return found
