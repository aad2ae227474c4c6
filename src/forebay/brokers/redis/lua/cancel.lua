local verdicts = {}
for i, id in ipairs(A.ids) do
  local h = load(id)
  if not h or gone_at(h) <= NOW then
    verdicts[i] = {'unknown'}
  elseif h.st == '6' then
    verdicts[i] = {'already'}
  elseif is_final(h.st) then
    verdicts[i] = {'final'}
  elseif h.st == '2' then
    call('HSET', of(id), 'asked', '1')
    call('HSETNX', of(id), 'ca', num(NOW))
    verdicts[i] = {'requested', h.task}
  else
    end_waiting(id, h, '6', A.event)
    verdicts[i] = {'cancelled', h.task}
  end
end
return done(verdicts)
