-- One request of 1 KB per call; counts every answer that is not 200.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"id":0,"text":"' .. string.rep("x", 1006) .. '"}'
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init() other = 0 end
function response(status) if status ~= 200 then other = other + 1 end end
function done(summary)
  local refused = 0
  for _, thread in ipairs(threads) do refused = refused + thread:get("other") end
  print(string.format("answers %d refused %d", summary.requests, refused))
end
