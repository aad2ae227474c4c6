-- One part of a listing: ids newest first that pass what can be asked here, with their metadata.
local key = P .. 'ids'
if A.tenant and A.tenant ~= '' then key = P .. 'ids:n:' .. A.tenant
elseif A.task then key = P .. 'ids:t:' .. A.task end
local ids = call('ZREVRANGEBYLEX', key, A.after and '(' .. A.after or '+', '-', 'LIMIT', 0, A.look)
local found = {}
for _, id in ipairs(ids) do
  local v = call('HMGET', of(id), 'task', 'tenant', 'st', 'fa', 'meta')
  local h = {task = v[1], st = v[3], fa = v[4] or nil}
  if (not A.task or v[1] == A.task) and (not A.tenant or v[2] == A.tenant)
    and (not A.states or A.states[v[3]]) and gone_at(h) > NOW then
    found[#found + 1] = {id, A.meta and (v[5] or '') or ''}
  end
end
return {#ids, ids[#ids] or false, found}
