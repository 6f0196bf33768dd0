/**
 * Counts what the clients of this process send to Redis and Postgres.
 *
 * A server's own counters do not tell a command that a client sent from one that a script called, so it is counted
 * where every command of ioredis and every query of pg passes. A command that is queued until there is a connection
 * passes twice: count when all are connected.
 */
import { Redis } from 'ioredis';
import pg from 'pg';

/** @returns what has been sent since this call */
export function countRequests(): () => number {
  let sent = 0;
  const counted = <A extends unknown[], R>(send: (...args: A) => R) =>
    function (this: unknown, ...args: A): R {
      sent++;
      return send.apply(this, args);
    };
  Redis.prototype.sendCommand = counted(Redis.prototype.sendCommand);
  // The overloads of `query` say more than is needed here.
  const client = pg.Client.prototype as { query: (...args: unknown[]) => unknown };
  client.query = counted(client.query);
  return () => sent;
}
