local found = {}
for i, key in ipairs(A.keys) do found[i] = known(key) or false end
return found
