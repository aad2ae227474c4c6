-- Transitions whose fence is current. One whose cancel was asked for comes back, unless it is `forced`.
for _, step in ipairs(A.steps) do
  if step.deadly and not deadly_is_known() then return done('stale') end
end
local answers = {}
for i, step in ipairs(A.steps) do
  local id, h = step.id, load(step.id)
  if not h or h.st ~= '2' or tonumber(h.fence) ~= step.fence then
    answers[i] = {'0'}
  elseif h.asked and not step.forced then
    answers[i] = {'?', row(id)}
  else
    local ends = is_final(step.st)
    local gone = {'lu', 'prog', 'ca', 'out', 'err', 'we', 'atts'}
    if ends then gone[8] = 'chk' end
    call('HDEL', of(id), unpack(gone))
    link(id, h, 'o', step.output_blobs)
    if ends then
      finish(id, h, step.st, step.at, step.set, true)
    else
      if step.chk then
        call('HSET', of(id), 'chk', step.chk)
        link(id, h, 'c', step.chk_blobs)
      end
      if h.chain then rest(id, h) end
      shift(id, h, step.st, step.set)
      if h.chain then rouse(chain_of(h)) end
    end
    if step.deadly then store_deadly(step.deadly) end
    answers[i] = {'1', h.task, h.tenant, h.prio, h.sa, h.chain and '1' or '0'}
  end
end
return done(answers)
