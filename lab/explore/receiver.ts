/**
 * The receiver of tasks: what `fetch` leads to. An attempt of a worker arrives at once; when it is answered, and how, is chosen like the other
 * events. Events are confirmed at once.
 */
import type { Event } from './choose.ts';
import { made, type World } from './events.ts';
import { virtual } from './virtual.ts';

interface Delivery {
  /** The process that waits for the answer. */
  readonly owner: string;
  readonly key: string;
  readonly text: string;
  readonly answer: (status: number) => void;
}

type Fetch = (
  url: unknown,
  request: { readonly headers: Record<string, string>; readonly body: string },
) => Promise<unknown>;

export class Receiver {
  readonly #deliveries: Delivery[] = [];
  #requests = 0;
  /** The bodies of each task, by its idempotency key. */
  readonly bodies = new Map<string, Set<string>>();
  /** Keys of tasks that were confirmed. */
  readonly confirmed = new Set<string>();

  readonly fetch: Fetch = (_, { headers, body }) => {
    const key = headers['idempotency-key']!;
    const response = (status: number) => ({ ok: status === 200, status, body: null });
    const { kind, payload } = JSON.parse(body) as { kind?: string; payload?: { readonly userId: string } };
    if (kind === undefined) return Promise.resolve(response(200));
    this.bodies.set(key, (this.bodies.get(key) ?? new Set()).add(body));
    const text = `${kind} for ${payload!.userId} (${++this.#requests})`;
    return new Promise((resolve) => {
      const answer = (status: number) => resolve(response(status));
      this.#deliveries.push({ owner: virtual.owner, key, text, answer });
    });
  };

  /** Answers that can arrive now. */
  events(at: World, found: Event[]): void {
    for (const delivery of this.#deliveries) {
      const { owner, key, text, answer } = delivery;
      if (!at.isUp(owner)) continue;
      const event = (of: object, words: string, status: number, weight: number) =>
        at.known.get(of) ??
        made(at, of, `receiver → ${owner}: ${words} ${text}`, `receiver ${key}`, weight, () => {
          this.#deliveries.splice(this.#deliveries.indexOf(delivery), 1);
          if (status === 200) this.confirmed.add(key);
          return virtual.as(owner, () => answer(status));
        });
      found.push(event(delivery, 'confirms', 200, 0.15), event(answer, 'refuses', 500, 0.1));
    }
  }

  /** The process that waits for an answer has died. */
  forget(owner: string): void {
    for (let n = this.#deliveries.length - 1; n >= 0; n--)
      if (this.#deliveries[n]!.owner === owner) this.#deliveries.splice(n, 1);
  }
}
