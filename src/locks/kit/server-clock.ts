/**
 * What a lock is exposed to whose leases and fencing tokens follow the clock of one Redis server. The holder counts its
 * deadline on its own clock, and does not see the server's jump.
 */
export const SERVER_CLOCK_FLAW =
  "When the server's clock jumps ahead, a lease ends there before its holder's deadline; when the server is back empty with its clock set back, it issues lower fencing tokens than before.";
