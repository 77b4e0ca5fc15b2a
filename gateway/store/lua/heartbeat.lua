-- Renews an owner's lease by the store's own clock: replicas' clocks may differ, this one is the same for all.
--
-- KEYS[1] leases (sorted set)   KEYS[2] the owner's claims (set)
-- ARGV[1] owner   ARGV[2] lease, ms   ARGV[3] time to live of both, ms

local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('ZADD', KEYS[1], ms + ARGV[2], ARGV[1])
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) < tonumber(ARGV[3]) then
    redis.call('PEXPIRE', key, ARGV[3])
  end
end
return ms
