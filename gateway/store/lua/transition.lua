-- Applies one transition of one request, if the record is at the version that the caller saw.
--
-- KEYS[1] the record (hash)   KEYS[2] its events (stream)
-- ARGV[1] operation id        ARGV[2] expected version
-- ARGV[3] event               ARGV[4] state to go to      ARGV[5] time, epoch seconds
-- ARGV[6] time to live, ms    ARGV[7...] further field, value pairs
--
-- Returns {outcome, version, state}. The version itself remembers which operation made it (`op:<version>`), so a
-- repeated operation is found however late it comes, and a record holds as many of them as it had transitions.

local state = redis.call('HGET', KEYS[1], 'state')
if not state then
  return {'missing', 0, ''}
end
local version = tonumber(redis.call('HGET', KEYS[1], 'version'))
local next_version = tonumber(ARGV[2]) + 1
if redis.call('HGET', KEYS[1], 'op:' .. next_version) == ARGV[1] then
  return {'dup', version, state}
end
if version ~= tonumber(ARGV[2]) then
  return {'conflict', version, state}
end
local fields = {
  'version', next_version, 'state', ARGV[4], 'updated_at', ARGV[5],
  'op:' .. next_version, ARGV[1], 'at:' .. ARGV[4], ARGV[5],
}
for i = 7, #ARGV do
  fields[#fields + 1] = ARGV[i]
end
redis.call('HSET', KEYS[1], unpack(fields))
redis.call('XADD', KEYS[2], 'MAXLEN', '~', 256, '*', 'event', ARGV[3], 'state', ARGV[4], 'at', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('PEXPIRE', KEYS[2], ARGV[6])
return {'ok', next_version, ARGV[4]}
