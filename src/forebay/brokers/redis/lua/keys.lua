-- Every idempotency key that means one of these jobs.
local found = {}
for _, id in ipairs(A.ids) do
  local iks = call('HGET', of(id), 'iks')
  for _, key in ipairs(iks and cmsgpack.unpack(iks) or {}) do
    local v = call('HGET', P .. 'k', key)
    if v and string.sub(v, 1, 36) == id then found[#found + 1] = {key, id, string.sub(v, 37)} end
  end
end
return found
