-- Forgets an owner whose lease is over. An owner that renewed its lease meanwhile stays.
--
-- KEYS[1] leases (sorted set)   ARGV[1] owner

local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not score then
  return 0
end
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
if tonumber(score) > ms then
  return 0
end
return redis.call('ZREM', KEYS[1], ARGV[1])
