-- The owners whose lease is over, by the store's own clock.
--
-- KEYS[1] leases (sorted set)   ARGV[1] how many at most

local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
return redis.call('ZRANGE', KEYS[1], '-inf', ms, 'BYSCORE', 'LIMIT', 0, ARGV[1])
