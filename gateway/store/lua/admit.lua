-- Writes a new record, at version 1. The same record again is a repeated write; another one under its id is not.
--
-- KEYS[1] the record (hash)   KEYS[2] its events (stream)
-- ARGV[1] operation id        ARGV[2] state   ARGV[3] time, epoch seconds
-- ARGV[4] time to live, ms    ARGV[5] events to keep
-- ARGV[6...] further field, value pairs
--
-- Returns {outcome, version, state}.

local seen = redis.call('HMGET', KEYS[1], 'version', 'state', 'op:1')
if seen[1] then
  return {seen[3] == ARGV[1] and 'dup' or 'conflict', tonumber(seen[1]), seen[2]}
end
local fields = {'version', 1, 'state', ARGV[2], 'updated_at', ARGV[3], 'op:1', ARGV[1], 'at:' .. ARGV[2], ARGV[3]}
for i = 6, #ARGV do
  fields[#fields + 1] = ARGV[i]
end
redis.call('HSET', KEYS[1], unpack(fields))
local row = with_engines({'event', 'admitted', 'state', ARGV[2], 'at', ARGV[3]}, 6)
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], '*', unpack(row))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return {'ok', 1, ARGV[2]}
