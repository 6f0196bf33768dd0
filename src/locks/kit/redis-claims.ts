/**
 * What a process holds in Redis under the lock `redis`, and passes on from one of its contenders to the next.
 *
 *   claim ──lease──▶ released ──another waits here, and it may be passed on──▶ the next one's lease
 *                       └──▶ taken out of Redis, which wakes a process; this one goes to the end of the line if
 *                            others wait here
 *
 * Passing on costs no round trip: the claim stays in Redis, and the next contender has it with the next of the fencing
 * tokens that were set aside. PASS_MOST times and PASS_MS long, so that other processes come in. The idea is lock
 * cohorting (Dice, Marathe and Shavit, 2012).
 */
import { randomUUID } from 'node:crypto';
import type { Turn } from '../../concurrency/local-queue.ts';
import type { RedisStore } from '../../store/redis/connection.ts';
import { defineScript } from '../../store/redis/script.ts';
import type { AcquireOptions } from '../lock.ts';
import { type Settlements, settled } from './ambiguous-write.ts';
import { fenceKey, keyOf, lockKey } from './keys.ts';
import type { Bell, Bells } from './notifications.ts';
import { RenewingLease } from './renewing-lease.ts';

const PASS_MOST = 63;
const PASS_MS = 50;
/** The share of the TTL that must be left to the next one; a renewal comes after a third. */
const PASS_LEFT_SHARE = 0.5;

export interface Claim {
  readonly token: string;
  /** The token itself, when the claim named no owner. */
  readonly owner: string;
  readonly ttlMs: number;
  /** The first of those that were set aside. */
  readonly fencingToken: number;
  readonly sinceMs: number;
  /** When the newest request was sent that Redis granted. */
  readonly confirmedMs: number;
  /** How often it was passed on. */
  readonly passed: number;
}

/** What one contender leaves to the next one of its process: a claim, or a place in the line with its bell. */
export interface Legacy {
  readonly claim?: Claim;
  readonly bell?: Bell;
}

export class Claims {
  readonly #enter;
  readonly #extend;
  readonly #exit;
  readonly #bells: Bells;
  readonly #settlements: Settlements;

  constructor({ redis }: RedisStore, bells: Bells, settlements: Settlements) {
    this.#enter = defineScript<number>(redis, 'lock/reentrant-acquire', 3);
    this.#extend = defineScript<number>(redis, 'lock/reentrant-renew', 1);
    this.#exit = defineScript<number>(redis, 'lock/reentrant-release', 2);
    this.#bells = bells;
    this.#settlements = settlements;
  }

  /** Asks once, and stands in line where a channel is given. @throws what Redis throws */
  async ask(
    resource: string,
    { ttlMs, owner }: AcquireOptions,
    channel: string,
  ): Promise<Claim | { readonly leftMs: number }> {
    const token = randomUUID();
    const sinceMs = performance.now();
    const ask = () =>
      this.#enter(
        lockKey(resource),
        fenceKey(resource),
        waitersKey(resource),
        token,
        owner ?? token,
        ttlMs,
        PASS_MOST + 1,
        channel,
      );
    const undo = () => this.#exit(lockKey(resource), waitersKey(resource), token, '', 0);
    const reply = await settled({ ask, again: ask, undo, ttlMs, settlements: this.#settlements });
    if (reply <= 0) return { leftMs: -reply };
    const claim = { token, owner: owner ?? token, ttlMs, fencingToken: reply };
    return { ...claim, sinceMs, confirmedMs: sinceMs, passed: 0 };
  }

  /** @param turn of the contender who has the claim now */
  lease(resource: string, claim: Claim, turn: Turn<Legacy>): RenewingLease {
    const { token, ttlMs, passed } = claim;
    const release = async () => {
      const next = { ...claim, confirmedMs: lease.confirmedMs, passed: passed + 1 };
      return (mayPass(next) && turn.pass({ claim: next })) || this.giveBack(resource, claim, turn);
    };
    const renew = async () => (await this.#extend(lockKey(resource), token, ttlMs)) === 1;
    const fencingToken = claim.fencingToken + passed;
    const lease: RenewingLease = new RenewingLease(
      { renew, release },
      { resource, token: `${token}:${passed}`, fencingToken, ttlMs, askedMs: claim.confirmedMs },
    );
    return lease;
  }

  /** @returns whether it was still held @throws when that is not known; then it is tried again in the background */
  async giveBack(resource: string, { token, ttlMs }: Claim, turn: Turn<Legacy>): Promise<boolean> {
    const { channel } = this.#bells;
    const exit = (again: boolean) =>
      this.#exit(lockKey(resource), waitersKey(resource), token, channel, again ? 1 : 0);
    // Armed before the request, since the line may be short.
    const bell = turn.waiting > 0 ? this.#bells.arm(lockKey(resource)) : null;
    let others = false;
    try {
      const reply = await exit(bell !== null && channel !== '');
      others = reply === 2;
      return reply > 0;
    } catch (error) {
      this.#settlements.undo(() => exit(false).then(() => true), ttlMs);
      throw error;
    } finally {
      // Where another process was woken, the next one here does not get in before it.
      if (bell !== null && !(others && turn.pass({ bell }))) {
        bell.disarm();
        if (others && channel !== '') this.leaveLine(resource, channel, ttlMs);
      }
    }
  }

  /** In the background; who was woken in the same moment lets Redis wake another. */
  leaveLine(resource: string, channel: string, ttlMs: number): void {
    const leave = () => this.#exit(lockKey(resource), waitersKey(resource), '', channel, 0);
    this.#settlements.undo(() => leave().then(() => true), ttlMs);
  }
}

function mayPass({ token, owner, ttlMs, sinceMs, confirmedMs, passed }: Claim): boolean {
  const now = performance.now();
  const inTime = now - sinceMs < PASS_MS && now - confirmedMs < ttlMs * (1 - PASS_LEFT_SHARE);
  return owner === token && passed <= PASS_MOST && inTime;
}

const waitersKey = (resource: string) => keyOf(resource, 'waiters');
