if not deadly_is_known() then return done('stale') end
store_deadly(A.changes)
return done('stored')
