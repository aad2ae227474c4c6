local h = load(A.id)
if not h or not h.chain or not WAITS[h.st] then return false end
return head(chain_of(h)) or false
