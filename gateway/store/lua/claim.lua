-- Notes that an owner runs a request. An owner that never had a lease, or lost it, gets a short one: a claim that no
-- lease stands for would never be looked at again.
--
-- KEYS[1] leases (sorted set)   KEYS[2] the owner's claims (set)
-- ARGV[1] owner   ARGV[2] request id   ARGV[3] first lease, ms   ARGV[4] time to live of both, ms

local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('SADD', KEYS[2], ARGV[2])
redis.call('ZADD', KEYS[1], 'NX', ms + ARGV[3], ARGV[1])
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) < tonumber(ARGV[4]) then
    redis.call('PEXPIRE', key, ARGV[4])
  end
end
return ms
