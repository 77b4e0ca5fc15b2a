-- Forgets an owner whose lease is over and who claims nothing. One that renewed its lease meanwhile stays, and so does
-- one that claimed a request meanwhile.
--
-- KEYS[1] leases (sorted set)   KEYS[2] the owner's claims (set)   ARGV[1] owner

local ends = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 'inf')
local now = redis.call('TIME')
if ends > now[1] * 1000 + math.floor(now[2] / 1000) or redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
return redis.call('ZREM', KEYS[1], ARGV[1])
