local found = {}
for i, id in ipairs(A.ids) do
  local v = row(id)
  found[i] = v[2] and {id, v} or false
end
return {num(NOW), found}
