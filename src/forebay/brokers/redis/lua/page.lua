-- Whole jobs, newest first, whatever has become of them.
local ids = call('ZREVRANGEBYLEX', P .. 'ids', A.after and '(' .. A.after or '+', '-', 'LIMIT', 0, A.limit)
local found = {}
for i, id in ipairs(ids) do found[i] = {id, row(id)} end
return found
