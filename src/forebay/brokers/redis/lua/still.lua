-- Which of these jobs are queued.
local found = {}
for _, id in ipairs(A.ids) do
  if call('HGET', of(id), 'st') == '1' then found[#found + 1] = id end
end
return found
