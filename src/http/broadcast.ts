/**
 * Server-sent events: each topic is read, serialized and framed once for all of its listeners.
 *
 *   a topic:     closed ──first listener, topic exists──▶ open ──last listener left──▶ closed
 *   a listener:  current ──last frame still buffered──▶ behind ──buffer empty──▶ current: gets the latest frame
 *
 * All open topics are read together every `everyMs`. A listener that is behind gets no further frame.
 * A listener therefore buffers at most one frame. One that stays behind for `stalledMs` is disconnected.
 */
import type { Response } from 'express';
import { shared } from '../concurrency/coalesce.ts';
import { limits } from '../config/limits.ts';

/** What listeners watch. */
export interface Source<Topic> {
  /** Milliseconds between two reads. */
  readonly everyMs: number;
  /**
   * Reads some topics at once.
   * @returns the values of the topics that exist, and the store's clock, milliseconds since 1970
   */
  read(
    topics: readonly Topic[],
  ): Promise<{ readonly values: ReadonlyMap<Topic, object>; readonly nowMs: number }>;
  /** Receives errors of `read`. Listeners keep the last value and get a comment as heartbeat. */
  onError(error: unknown): void;
}

interface Channel {
  /** Since when each listener is behind, milliseconds; null: it is current. */
  readonly listeners: Map<Response, number | null>;
  /** The latest value as JSON, without the clock. */
  text: string;
  frame: Buffer;
  framedMs: number;
  /** How far the store's clock was ahead of this process's when it was last read, milliseconds. */
  aheadMs: number;
}

const COMMENT = Buffer.from(': alive\n\n');
const { heartbeatMs, stalledMs, retryMs } = limits.events;

export class Broadcast<Topic> {
  readonly #source: Source<Topic>;
  readonly #channels = new Map<Topic, Channel>();
  /** Concurrent first listeners share one read. */
  readonly #open = shared(async (topic: Topic): Promise<Channel | null> => {
    const { values, nowMs } = await this.#source.read([topic]);
    const value = values.get(topic);
    if (value === undefined) return null;
    const channel = { listeners: new Map(), text: '', frame: COMMENT, framedMs: 0, aheadMs: 0 };
    frame(channel, value, nowMs);
    return channel;
  });
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;
  /** Listeners whose topic is being opened. */
  #waiting = 0;

  constructor(source: Source<Topic>) {
    this.#source = source;
  }

  /** Listeners of all topics, including those that wait for their first event. */
  get size(): number {
    return [...this.#channels.values()].reduce((sum, { listeners }) => sum + listeners.size, this.#waiting);
  }

  /**
   * Sends a topic's events until the listener or the service closes.
   * @returns false when there is no such topic @throws what `read` throws
   */
  async listen(topic: Topic, res: Response): Promise<boolean> {
    const channel = this.#channels.get(topic) ?? (await this.#opened(topic));
    if (channel === null) return false;
    if (res.destroyed) return true;
    // Without chunked encoding, a frame is one write of the shared buffer; the end of the connection ends the stream.
    res.removeHeader('Transfer-Encoding');
    res.writeHead(200, {
      'Content-Type': 'text/event-stream',
      'Cache-Control': 'no-store',
      'X-Accel-Buffering': 'no',
      Connection: 'close',
    });
    // Jitter, so that clients of a stopped process do not all reconnect at once.
    res.write(`retry: ${Math.round(retryMs * (1 + Math.random()))}\n\n`);
    res.write(frameNow(channel));
    if (this.#isClosed) {
      res.end();
      return true;
    }
    // The last other listener may have left meanwhile, and the channel with it.
    this.#channels.set(topic, channel);
    channel.listeners.set(res, null);
    res.on('close', () => channel.listeners.delete(res));
    this.#schedule();
    return true;
  }

  /** Ends every stream. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    for (const { listeners } of this.#channels.values()) for (const res of listeners.keys()) res.end();
    this.#channels.clear();
  }

  async #opened(topic: Topic): Promise<Channel | null> {
    this.#waiting += 1;
    try {
      return await this.#open(topic);
    } finally {
      this.#waiting -= 1;
    }
  }

  #schedule(): void {
    if (this.#isClosed || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => void this.#pass(), this.#source.everyMs);
  }

  async #pass(): Promise<void> {
    for (const [topic, { listeners }] of this.#channels)
      if (listeners.size === 0) this.#channels.delete(topic);
    if (this.#channels.size > 0) {
      const read = await this.#source.read([...this.#channels.keys()]).catch((error) => {
        this.#source.onError(error);
        return null;
      });
      const atMs = performance.now();
      for (const [topic, channel] of this.#channels) {
        const value = read?.values.get(topic);
        const isNew = value !== undefined && frame(channel, value, read!.nowMs);
        const isDue = !isNew && value === undefined && atMs - channel.framedMs >= heartbeatMs;
        if (isDue) channel.framedMs = atMs;
        send(channel, isNew ? channel.frame : isDue ? COMMENT : null, atMs);
      }
    }
    this.#timer = undefined;
    if (this.#channels.size > 0) this.#schedule();
  }
}

/** Builds the next frame if the value changed or a heartbeat is due. @returns whether it did */
function frame(channel: Channel, value: object, nowMs: number): boolean {
  const text = JSON.stringify(value);
  const atMs = performance.now();
  channel.aheadMs = nowMs - atMs;
  if (text === channel.text && atMs - channel.framedMs < heartbeatMs) return false;
  channel.text = text;
  channel.frame = frameNow(channel);
  channel.framedMs = atMs;
  return true;
}

/** The latest value with the clock of now: a frame may be old, and the store may not answer since. */
const frameNow = ({ text, aheadMs }: Channel): Buffer =>
  Buffer.from(`data: {"now":${Math.round(performance.now() + aheadMs)},${text.slice(1)}\n\n`);

/** @param news the new frame or the heartbeat; null: only listeners that were behind get the latest frame */
function send(channel: Channel, news: Buffer | null, atMs: number): void {
  const { listeners } = channel;
  for (const [res, behindMs] of listeners) {
    if (behindMs === null && news === null) continue;
    if (res.writableLength === 0) {
      res.write(behindMs === null ? news! : frameNow(channel));
      if (behindMs !== null) listeners.set(res, null);
    } else if (behindMs === null) listeners.set(res, atMs);
    else if (atMs - behindMs >= stalledMs) res.destroy();
  }
}
