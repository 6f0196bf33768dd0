/**
 * How often a lone attempt waits for each store.
 *
 * Not every request of an attempt is one that its client waits for: a reservation is acknowledged in Redis while the client
 * already has the answer. So the link has a delay, and only what the stores answered before the client had its answer
 * counts; the next attempt begins when such leftovers are answered, too. The service also asks its stores in the
 * background, on the same connections. So each attempt is counted by itself, and the middle half of the counts is
 * averaged: an attempt that met background work has a higher count and falls out.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { FarStores, RoundTrips } from '../../../lab/far-stores.ts';
import { post } from '../../../lab/kit/http.ts';
import { readAnswer } from '../../load/answer.ts';

/** These open connections, prepare statements and load the sale. */
const warmUpAttempts = 10;
const countedAttempts = 50;
const attempts = warmUpAttempts + countedAttempts;
/** The fewest units of the sale: no segment may run out. */
export const unitsForRoundTrips = 100 * attempts;

/** Longer than an answer and the request for the count take together. */
const rttMs = 5;

/**
 * Round trips of an accepted attempt, on average, rounded to a tenth.
 * @param url where the service answers, without a path; its stores are those of `link`
 * @throws when an attempt is not accepted: another outcome takes other round trips
 */
export async function measureRoundTrips(link: FarStores, url: string, saleId: number): Promise<RoundTrips> {
  const counts: RoundTrips[] = [];
  await link.delay(rttMs);
  try {
    for (let n = 0; n < attempts; n++) {
      await sleep(3 * rttMs); // for the leftovers of the last one
      await link.reset();
      await attempt(url, saleId, `lone-${n}`);
      const count = await link.roundTrips();
      if (n >= warmUpAttempts) counts.push(count);
    }
  } finally {
    await link.delay(0);
  }
  return {
    redis: usual(counts.map(({ redis }) => redis)),
    postgres: usual(counts.map(({ postgres }) => postgres)),
  };
}

async function attempt(url: string, saleId: number, userId: string): Promise<void> {
  const { status, text } = await post(`${url}/sales/${saleId}/orders`, { userId });
  if (readAnswer(status, text).outcome === 'accepted') return;
  throw new Error(`a lone attempt was not accepted, but answered with ${status}: ${text}`);
}

/** The mean of the middle half. */
function usual(counts: readonly number[]): number {
  const quarter = Math.floor(counts.length / 4);
  const middle = [...counts].sort((a, b) => a - b).slice(quarter, counts.length - quarter);
  return Math.round((middle.reduce((sum, count) => sum + count, 0) / middle.length) * 10) / 10;
}
