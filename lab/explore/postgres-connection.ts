/** A connection of a real Postgres, and what is read of its protocol. */
import type { Socket } from 'node:net';
import { real } from './virtual.ts';

const READY = 0x5a; // 'Z'
export const PARSE = 0x50; // 'P'
export const BIND = 0x42; // 'B'
export const QUERY = 0x51; // 'Q'
export const SYNC = 0x53; // 'S'
const KEY_DATA = 0x4b; // 'K'
const EXECUTE = 0x45; // 'E'
const DATA_ROW = 0x44; // 'D'
export const TERMINATE = 0x58; // 'X'
export const PARSED = Buffer.from([0x31, 0, 0, 0, 4]);
export const IDLE = 0x49; // 'I'
/** Another than one that has failed, which holds nothing any more. */
export const IN_TRANSACTION = 0x54; // 'T'

/** A message with its type and length. */
export function* messagesIn(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at + 5 <= bytes.length; ) {
    const end = at + 1 + bytes.readInt32BE(at + 1);
    yield bytes.subarray(at, end);
    at = end;
  }
}

export const textAt = (bytes: Buffer, at: number): string => bytes.toString('utf8', at, bytes.indexOf(0, at));

/** One connection of the server. */
export class Connection {
  readonly #socket: Socket;
  #received: Buffer = Buffer.alloc(0);
  #reply: ((reply: Buffer | 'ended') => void) | null = null;
  /** The greeting, from "authenticated" to "ready". */
  greeting: Buffer = Buffer.alloc(0);
  pid = 0;
  /** The text of each prepared statement. */
  readonly prepared = new Map<string, string>();
  /** `I`: no transaction; `T`, `E`: one is open, or has failed. */
  status = IDLE;
  hasEnded = false;
  readonly ended: Promise<void>;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk: Buffer) => this.#receive(chunk));
    this.ended = new Promise((resolve) => {
      const end = () => {
        this.hasEnded = true;
        this.#settle('ended');
        resolve();
      };
      socket.on('error', end);
      socket.on('close', end);
    });
  }

  /** @param path of the server's Unix-domain socket @param startup the first message @throws when the server refuses */
  static async open(path: string, startup: Buffer): Promise<Connection> {
    const connection = new Connection(real.createConnection(path));
    const greeting = await connection.ask(startup);
    if (greeting === 'ended') throw new Error('the Postgres of the explorer refuses a connection');
    connection.greeting = greeting;
    for (const message of messagesIn(greeting))
      if (message[0] === KEY_DATA) connection.pid = message.readInt32BE(5);
    return connection;
  }

  /** @returns the reply up to "ready" */
  ask(bytes: Buffer): Promise<Buffer | 'ended'> {
    if (this.hasEnded) return Promise.resolve('ended');
    return new Promise((resolve) => {
      this.#reply = resolve;
      this.#socket.write(bytes);
    });
  }

  end(): void {
    this.#socket.destroy();
  }

  #receive(chunk: Buffer): void {
    const bytes = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    this.#received = bytes;
    for (let at = 0; at + 5 <= bytes.length; ) {
      const end = at + 1 + bytes.readInt32BE(at + 1);
      if (end > bytes.length) return;
      if (bytes[at] === READY) {
        this.status = bytes[at + 5]!;
        this.#received = bytes.subarray(end);
        this.#settle(bytes.subarray(0, end));
        return;
      }
      at = end;
    }
  }

  #settle(reply: Buffer | 'ended'): void {
    const settle = this.#reply;
    this.#reply = null;
    settle?.(reply);
  }
}

export function message(type: number, ...parts: readonly Buffer[]): Buffer {
  const head = Buffer.alloc(5);
  head[0] = type;
  head.writeInt32BE(4 + parts.reduce((sum, { length }) => sum + length, 0), 1);
  return Buffer.concat([head, ...parts]);
}

/** The first message of a connection. */
export function startup(parameters: Readonly<Record<string, string>>): Buffer {
  const pairs = Object.entries(parameters).flat();
  const body = Buffer.from(`\0\x03\0\0${pairs.map((one) => `${one}\0`).join('')}\0`);
  const length = Buffer.alloc(4);
  length.writeInt32BE(4 + body.length);
  return Buffer.concat([length, body]);
}

/** A statement of the explorer itself, without parameters: prepared once, on a connection that runs nothing else at that time. */
export class Prepared {
  readonly #connection: Connection;
  #parse: Buffer;
  readonly #run: Buffer;

  /** @param name among the statements of the connection */
  constructor(connection: Connection, name: string, text: string) {
    this.#connection = connection;
    this.#parse = message(PARSE, Buffer.from(`${name}\0${text}\0\0\0`));
    // An unnamed portal, no parameters, results as text, all rows.
    const bind = message(BIND, Buffer.from(`\0${name}\0\0\0\0\0\0\0`));
    this.#run = Buffer.concat([bind, message(EXECUTE, Buffer.alloc(5)), message(SYNC)]);
  }

  /** @returns the columns of each row. @throws when the connection has ended */
  async rows(): Promise<readonly (readonly string[])[]> {
    const reply = await this.#connection.ask(Buffer.concat([this.#parse, this.#run]));
    this.#parse = Buffer.alloc(0); // it is prepared
    if (reply === 'ended') throw new Error('the Postgres of the explorer has ended a connection');
    return [...messagesIn(reply)].filter(([type]) => type === DATA_ROW).map(columnsOf);
  }
}

/** No column is null. */
function columnsOf(row: Buffer): string[] {
  let at = 7;
  return Array.from({ length: row.readInt16BE(5) }, () => {
    const from = at + 4;
    at = from + row.readInt32BE(at);
    return row.toString('utf8', from, at);
  });
}

export const simpleQuery = (text: string): Buffer => message(QUERY, Buffer.from(`${text}\0`));

/** A Bind message of an unnamed statement, for a named one. */
export function withStatement(bind: Buffer, name: string): Buffer {
  const at = bind.indexOf(0, 5) + 1; // behind the name of the portal
  return message(BIND, bind.subarray(5, at), Buffer.from(`${name}\0`), bind.subarray(at + 1));
}

/** The name of a prepared statement, or the first words of another. */
export function nameOf(unit: Buffer): string {
  const [type] = unit;
  if (type === TERMINATE) return 'end';
  if (type === QUERY) return wordsOf(textAt(unit, 5));
  if (type === PARSE) {
    const name = textAt(unit, 5);
    return name === '' ? wordsOf(textAt(unit, 6)) : name;
  }
  return (type === BIND && textAt(unit, 5 + textLength(unit, 5) + 1)) || 'statement';
}

const textLength = (bytes: Buffer, at: number): number => bytes.indexOf(0, at) - at;

const WORDS = new Map<string, string>();

function wordsOf(text: string): string {
  const known = WORDS.get(text) ?? firstWordsOf(text);
  WORDS.set(text, known);
  return known;
}

function firstWordsOf(text: string): string {
  const words = text.replaceAll(/\s+/g, ' ').trim();
  const table = /\b(?:FROM|INTO|UPDATE) ([a-z_]{3,})/.exec(words)?.[1];
  const verb = /^[A-Za-z]+/.exec(words)?.[0] ?? '';
  return /^(BEGIN|COMMIT|ROLLBACK|SET)/.test(verb)
    ? words.slice(0, 40)
    : `${verb} ${table ?? words.slice(verb.length + 1, 30)}`;
}
