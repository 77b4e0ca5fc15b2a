-- Applies one transition of one request, if the record is as its writer believes, and has not ended.
--
-- KEYS[1] the record (hash)   KEYS[2] its events (stream)
-- ARGV[1] operation id        ARGV[2] expected version
-- ARGV[3] the operation that must have made that version, '' for any
-- ARGV[4] event               ARGV[5] state to go to      ARGV[6] '1' if the request ends with it
-- ARGV[7] time, epoch seconds ARGV[8] time to live, ms
-- ARGV[9] events to keep      ARGV[10] operation ids to keep
-- ARGV[11...] further field, value pairs
--
-- Returns {outcome, version, state}. Each version remembers the operation that made it (`op:<version>`), so a repeated
-- operation is found however late it comes.

local expected = tonumber(ARGV[2])
local next_version = expected + 1
local seen = redis.call(
  'HMGET', KEYS[1], 'version', 'state', 'ended', 'op:' .. expected, 'op:' .. next_version)
local version = tonumber(seen[1] or 0)
if version == 0 then
  return {'missing', 0, ''}
end
if seen[5] == ARGV[1] then
  return {'dup', version, seen[2]}
end
if version ~= expected or seen[3] or (ARGV[3] ~= '' and ARGV[3] ~= seen[4]) then
  return {'conflict', version, seen[2]}
end
local fields = {'version', next_version, 'state', ARGV[5], 'updated_at', ARGV[7], 'op:' .. next_version, ARGV[1]}
if ARGV[6] == '1' then
  fields[#fields + 1] = 'ended'
  fields[#fields + 1] = ARGV[7]
end
for i = 11, #ARGV do
  fields[#fields + 1] = ARGV[i]
end
redis.call('HSET', KEYS[1], unpack(fields))
redis.call('HSETNX', KEYS[1], 'at:' .. ARGV[5], ARGV[7])
redis.call('HDEL', KEYS[1], 'op:' .. (next_version - tonumber(ARGV[10])))
local row = with_engines({'event', ARGV[4], 'state', ARGV[5], 'at', ARGV[7]}, 11)
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[9], '*', unpack(row))
redis.call('PEXPIRE', KEYS[1], ARGV[8])
redis.call('PEXPIRE', KEYS[2], ARGV[8])
return {'ok', next_version, ARGV[5]}
