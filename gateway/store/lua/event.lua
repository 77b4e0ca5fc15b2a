-- Stands before the scripts that write an event: `row` is what it tells, and behind that go the engines among the
-- record's fields, which are field, value pairs from ARGV[first] on. The record itself has only the last attempt's.
local ENGINES = {prefill = true, decode = true, talker = true, code2wav = true}
local function with_engines(row, first)
  for i = first, #ARGV, 2 do
    if ENGINES[ARGV[i]] then
      row[#row + 1] = ARGV[i]
      row[#row + 1] = ARGV[i + 1]
    end
  end
  return row
end
