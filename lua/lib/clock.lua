-- Defines `nowUs` and `nowMs`: the server's clock, Unix time in microseconds and milliseconds.
local time = redis.call('TIME')
local nowUs = time[1] * 1000000 + time[2]
local nowMs = math.floor(nowUs / 1000)
