-- Writes operators' orders as they stood last, unless there are some: only one replica may, and only where all are lost.
-- One by one they would also bring back what was taken back since.
--
-- KEYS[1] orders (hash)   ARGV[1] their time to live, ms   ARGV[2...] field, text, field, text, ...

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
for i = 2, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
