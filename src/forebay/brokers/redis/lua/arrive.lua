-- Jobs of another engine enter as they stand; those that are here already stay as they are.
local new = 0
for _, item in ipairs(A.items) do
  local id, set, h = item.id, item.set, {}
  if call('EXISTS', of(id)) == 0 then
    new = new + 1
    for i = 1, #set, 2 do h[set[i]] = set[i + 1] end
    call('HSET', of(id), unpack(set))
    for _, one in ipairs(item.keys) do name(id, one[1], one[2], one[1] ~= h.ik) end
    call('ZADD', P .. 'ids', 0, id)
    call('ZADD', P .. 'ids:t:' .. h.task, 0, id)
    if h.tenant ~= '' then call('ZADD', P .. 'ids:n:' .. h.tenant, 0, id) end
    if h.fp then call('ZADD', P .. 'tw:' .. h.fp, 0, id) end
    if h.chain and not is_final(h.st) then enter(id, h) end
    count(h, 1)
    place(id, h)
    for where, blobs in pairs(item.blobs) do link(id, h, where, blobs) end
    local owes = item.delivery
    if owes then
      call('HSET', P .. 'd:' .. id, unpack(owes.set))
      for _, tried in ipairs(owes.log) do call('RPUSH', P .. 'dg:' .. id, tried) end
      if owes.due then schedule(id, owes.ep, owes.due) end
    end
  end
end
return done(new)
