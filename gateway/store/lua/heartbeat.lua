-- Renews an owner's lease by the store's own clock: replicas' clocks may differ, this one is the same for all.
--
-- KEYS[1] leases (sorted set)   ARGV[1] owner   ARGV[2] lease, ms   ARGV[3] time to live of the set, ms

local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('ZADD', KEYS[1], ms + ARGV[2], ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return ms
