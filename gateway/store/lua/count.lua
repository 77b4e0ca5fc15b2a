-- How many places of an engine are taken; those whose time is over, by the store's own clock, are dropped.
--
-- KEYS[1] places (sorted set)

local now = redis.call('TIME')
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now[1] * 1000 + math.floor(now[2] / 1000))
return redis.call('ZCARD', KEYS[1])
