-- Takes a place in an engine's in-flight count. The count lives as long as its longest place.
--
-- KEYS[1] places (sorted set)   ARGV[1] request id   ARGV[2] when the place ends, epoch ms

redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
if redis.call('PEXPIRETIME', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIREAT', KEYS[1], ARGV[2])
end
return 1
