/**
 * Closes connections of clients that do not read their responses: they would fill memory within all limits of requests.
 *
 *   response ──▶ unsent ──read by the client──▶ sent
 *                  │ none was read for `afterMs` ──▶ the connection is closed
 *                  │ more than `perConnection`, or than `perAddress` of one client ──▶ closed
 *                  └ more than `perProcess` ──▶ those with the most are closed, until the rest is less
 *
 * Responses to purchases are small and bounded in number, so of those only the bytes in the socket are counted, and nothing is done for
 * each of them.
 */
import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { limits } from '../config/limits.ts';
import type { ClientLimits } from './client-limits.ts';

const RESPONSES = Symbol('responses that are not sent');
type WatchedSocket = Socket & { [RESPONSES]?: Set<ServerResponse> };

/** Counts the bytes of a response, also while it waits for those before it on its connection. */
export function watchResponse(res: ServerResponse): void {
  const socket = res.req.socket as WatchedSocket;
  socket[RESPONSES] ??= new Set();
  socket[RESPONSES].add(res);
  res.once('close', () => socket[RESPONSES]!.delete(res));
}

/** Bytes that wait for the client of a connection. */
function unsentBytes(socket: WatchedSocket): number {
  let bytes = socket.writableLength;
  // The one that is being sent counts what is in the socket, too.
  for (const { writableLength, socket: own } of socket[RESPONSES] ?? [])
    bytes += own === null ? writableLength : writableLength - socket.writableLength;
  return bytes;
}

interface Unread {
  readonly socket: WatchedSocket;
  readonly bytes: number;
}

/** Closes those with the most until the rest has no more than `most`. */
function closeLargest(unread: readonly Unread[], most: number, close: (socket: WatchedSocket) => void): void {
  let left = unread.reduce((sum, { bytes }) => sum + bytes, 0);
  for (const { socket, bytes } of unread.toSorted((a, b) => b.bytes - a.bytes)) {
    if (left <= most) return;
    left -= bytes;
    close(socket);
  }
}

export function closeUnread(server: Server, { addresses, onLimited }: ClientLimits): void {
  const { everyMs, afterMs, perConnection, perAddress, perProcess } = limits.unread;
  const sockets = new Set<WatchedSocket>();
  /** By connection with unsent bytes: how many were sent, and when that number grew last. */
  const sent = new Map<WatchedSocket, { readonly bytes: number; readonly atMs: number }>();

  function isStuck(socket: WatchedSocket, nowMs: number): boolean {
    const bytes = socket.bytesWritten - socket.writableLength;
    const before = sent.get(socket);
    if (before?.bytes === bytes) return nowMs - before.atMs > afterMs;
    sent.set(socket, { bytes, atMs: nowMs });
    return false;
  }

  function check(): void {
    const nowMs = performance.now();
    const unread: Unread[] = [];
    for (const socket of sockets) {
      const bytes = unsentBytes(socket);
      if (bytes === 0) sent.delete(socket);
      else if (bytes > perConnection || isStuck(socket, nowMs)) close(socket);
      else unread.push({ socket, bytes });
    }
    closeLargest(unread, perProcess, close);
    const ofAddress = new Map<string, Unread[]>();
    for (const one of unread) {
      if (one.socket.destroyed) continue;
      const address = addresses.ofSocket(one.socket);
      if (address === null) continue;
      const own = ofAddress.get(address);
      if (own === undefined) ofAddress.set(address, [one]);
      else own.push(one);
    }
    for (const own of ofAddress.values()) closeLargest(own, perAddress, close);
  }

  function close(socket: WatchedSocket): void {
    if (!socket.destroyed) onLimited('unread-responses');
    socket.destroy();
  }

  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => {
      sockets.delete(socket);
      sent.delete(socket);
    });
  });
  const timer = setInterval(check, everyMs).unref();
  server.once('close', () => clearInterval(timer));
}
