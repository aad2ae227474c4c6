local gone = 0
for _, each in ipairs(A.names) do
  gone = gone + call('HDEL', P .. 'crons', each)
  call('HDEL', P .. 'cronj', each)
end
return done(gone)
