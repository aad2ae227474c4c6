-- Posts one body again and again: wrk ... URL -- STATUS BODY. Counts every answer of another status.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init(args)
  expected, wrk.body, other = tonumber(args[1]), args[2], 0
end
function response(status) if status ~= expected then other = other + 1 end end
function done(summary)
  local refused = 0
  for _, thread in ipairs(threads) do refused = refused + thread:get("other") end
  print(string.format("answers %d refused %d", summary.requests, refused))
end
