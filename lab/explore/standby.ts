/**
 * The synchronous standby of a Postgres: it receives the log, and confirms what it has when `confirm` is called. Until then each commit waits.
 * What it would have after a promotion is a copy of the tables: see `explore.save()` in servers.ts.
 */
import type { Socket } from 'node:net';
import { startup } from './postgres-connection.ts';
import { real } from './virtual.ts';

/** Its name in synchronous_standby_names. */
export const STANDBY = 'explorer';

const QUERY = 0x51; // 'Q'
const COPY_DATA = 0x64; // 'd'
const READY = 0x5a; // 'Z'
const COPY_BOTH = 0x57; // 'W'
const STATUS = 0x72; // 'r': what is written, flushed and applied

export class Standby {
  readonly #socket: Socket;

  private constructor(socket: Socket, logged: () => void) {
    this.#socket = socket;
    socket.on('data', logged);
  }

  /**
   * @param path of the server's Unix-domain socket
   * @param lsn from which the log is sent
   * @param logged called when some of it has arrived
   */
  static async connect(path: string, user: string, lsn: string, logged: () => void): Promise<Standby> {
    const socket = real.createConnection(path);
    socket.write(startup({ user, replication: 'true', application_name: STANDBY }));
    await received(socket, READY);
    const query = Buffer.from(`START_REPLICATION PHYSICAL ${lsn}\0`);
    socket.write(Buffer.concat([Buffer.from([QUERY]), lengthOf(query), query]));
    await received(socket, COPY_BOTH);
    return new Standby(socket, logged);
  }

  /** Resolves when the server has ended the connection: no commit would be confirmed any more. */
  get ended(): Promise<void> {
    return new Promise((resolve) => this.#socket.once('close', () => resolve()));
  }

  /** Says that it has the log up to here. */
  confirm(lsn: bigint): void {
    const status = Buffer.alloc(34);
    status[0] = STATUS;
    for (const at of [1, 9, 17]) status.writeBigUInt64BE(lsn, at);
    this.#socket.write(Buffer.concat([Buffer.from([COPY_DATA]), lengthOf(status), status]));
  }

  end(): void {
    this.#socket.destroy();
  }
}

function lengthOf(body: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(4 + body.length);
  return length;
}

/** Waits for a message of a type, and drops all before it. @throws when the server refuses, or closes the connection */
function received(socket: Socket, type: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let bytes: Buffer = Buffer.alloc(0);
    const refuse = (why: unknown) =>
      reject(new Error(`Postgres refuses the standby of the explorer: ${why}`));
    socket.on('error', refuse);
    socket.on('close', () => refuse('the connection ended'));
    const take = (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk]);
      while (bytes.length >= 5 && bytes.length > bytes.readInt32BE(1)) {
        const message = bytes.subarray(0, 1 + bytes.readInt32BE(1));
        if (message[0] === 0x45) refuse(message.toString('utf8', 5)); // 'E'
        if (message[0] === type) {
          socket.off('data', take);
          return resolve();
        }
        bytes = bytes.subarray(message.length);
      }
    };
    socket.on('data', take);
  });
}
