local found = {}
for i, blob in ipairs(A.blobs) do found[i] = call('EXISTS', P .. 'blob:' .. blob) end
return found
