/** The claims of a schedule: contenders of one lock, whose leases are checked continuously. */
import { setTimeout as sleep } from 'node:timers/promises';
import { nowNs } from '../kit/monotonic.ts';
import type { ClientLock, Grant } from './open-lock.ts';
import type { Claim, LeaseRecord, Part, PartResult } from './protocol.ts';

/** Interval of a holder's checks of its lease, in milliseconds. */
const CHECK_MS = 2;
/** Limit of recorded checks, above any allowance. */
const MAX_CHECKS = 16;
/** Pause between two acquires while the server is unavailable. */
const RETRY_MS = 25;

const nowMs = (): number => nowNs() / 1e6;

/** Holds a lease and checks it continuously. */
class Holder {
  readonly grant: Grant;
  /** Called when the lease has ended for the holder. */
  onEnd: () => void = () => {};
  readonly #contender: 'a' | 'b';
  readonly #requestedMs: number;
  #firstMs = Number.MAX_VALUE;
  readonly #latestMs: number[] = [];
  #end: LeaseRecord['end'] | undefined;

  constructor(grant: Grant, contender: 'a' | 'b', requestedMs: number) {
    this.grant = grant;
    this.#contender = contender;
    this.#requestedMs = requestedMs;
    this.check();
    if (!this.hasEnded) keepChecking(this);
  }

  get record(): LeaseRecord {
    const [contender, requestedMs, firstMs] = [this.#contender, this.#requestedMs, this.#firstMs];
    return { contender, requestedMs, firstMs, latestMs: this.#latestMs, end: this.#end ?? 'crashed' };
  }

  get hasEnded(): boolean {
    return this.#end !== undefined;
  }

  check(): void {
    const beforeMs = nowMs();
    const isLost = this.grant.lost?.aborted === true;
    const afterMs = nowMs();
    if (isLost) {
      this.end('lost');
      return;
    }
    this.#firstMs = Math.min(this.#firstMs, afterMs);
    this.#latestMs.push(beforeMs);
    if (this.#latestMs.length > MAX_CHECKS) this.#latestMs.shift();
  }

  /** The release was in time. */
  confirm(): void {
    if (this.#end === 'late') this.#end = 'released';
  }

  end(how: LeaseRecord['end']): void {
    if (this.hasEnded) return;
    this.#end = how;
    holders.delete(this);
    this.onEnd();
  }
}

const holders = new Set<Holder>();
let checking: NodeJS.Timeout | undefined;

/** After a pause of the process, this timer fires before those of a lease. */
function keepChecking(holder: Holder): void {
  holders.add(holder);
  checking ??= setInterval(() => {
    for (const each of holders) each.check();
    if (holders.size > 0) return;
    clearInterval(checking);
    checking = undefined;
  }, CHECK_MS);
}

/** Runs one part at a time. */
export class Contenders {
  readonly #lock: ClientLock;
  #results = { holders: [] as Holder[], contended: 0, unavailable: 0 };
  #finish = new AbortController();
  #hasCrashed = false;
  #onCrash = () => {};

  constructor(lock: ClientLock) {
    this.#lock = lock;
  }

  /** Resolves when all contenders are done, or at the crash. */
  async claim(part: Part): Promise<PartResult> {
    this.#finish = new AbortController();
    this.#results = { holders: [], contended: 0, unavailable: 0 };
    const results = this.#results;
    const crash = new Promise<void>((resolve) => {
      this.#onCrash = resolve;
    });
    const claimsOf = (name: string) => part.claims.filter(({ contender }) => contender === name);
    const contenders = ['a', 'b'].map((name) => this.#contend(part, claimsOf(name)));
    await Promise.race([Promise.all(contenders), crash]);
    const { contended, unavailable } = results;
    return { contended, unavailable, leases: results.holders.map(({ record }) => record) };
  }

  /** Aborts waits and releases leases. */
  end(): void {
    this.#finish.abort();
  }

  /** The client stops without a release. Its proxy ends its connections. */
  crash(): void {
    this.#hasCrashed = true;
    for (const holder of this.#results.holders) holder.end('crashed');
    this.#onCrash();
  }

  async #contend(part: Part, claims: readonly Claim[]): Promise<void> {
    for (const claim of claims) {
      await this.#sleep(part.startMs + claim.atMs - nowMs());
      if (this.#hasCrashed || this.#finish.signal.aborted) return;
      const holder = await this.#acquire(part, claim);
      if (holder === null) continue;
      await this.#hold(holder, claim.holdMs);
      if (this.#hasCrashed) return;
      holder.check();
      holder.end('late');
      if (await holder.grant.release()) holder.confirm();
    }
  }

  async #acquire(part: Part, { waitMs, contender }: Claim): Promise<Holder | null> {
    const untilMs = nowMs() + waitMs;
    for (;;) {
      const requestedMs = nowMs();
      const leftMs = Math.max(0, untilMs - requestedMs);
      const { signal } = this.#finish;
      const grant = await this.#lock.acquire(part.resource, leftMs, signal, part.ttlMs);
      if (this.#hasCrashed) return null;
      if (!('refused' in grant)) {
        const holder = new Holder(grant, contender, requestedMs);
        this.#results.holders.push(holder);
        return holder;
      }
      if (grant.refused === 'contended') this.#results.contended++;
      if (grant.refused !== 'unavailable') return null;
      this.#results.unavailable++;
      if (nowMs() >= untilMs) return null;
      await this.#sleep(RETRY_MS);
    }
  }

  /** Ends early with the lease or the schedule. */
  async #hold(holder: Holder, ms: number): Promise<void> {
    if (holder.hasEnded) return;
    const ended = new Promise<void>((resolve) => {
      holder.onEnd = resolve;
    });
    await Promise.race([ended, this.#sleep(ms)]);
  }

  /** Ends early with the schedule. */
  async #sleep(ms: number): Promise<void> {
    await sleep(Math.max(0, ms), undefined, { signal: this.#finish.signal }).catch(() => {});
  }
}
