/**
 * How often a lone attempt waits for each store.
 *
 * Not every request of an attempt is one that its customer waits for: what was reserved in Redis is settled there while
 * the customer already has the answer. So the link is given a delay, and only what the stores have answered when the
 * customer has the answer is counted; and the next attempt begins when such leftovers are answered, too.
 *
 * The service also asks its stores by itself (it sweeps, recovers and looks for tasks once a second), on the same
 * connections. So each attempt is counted by itself, and of these counts the middle half is averaged: an attempt during
 * which the service did something else has a higher count and falls out. That holds as long as these are fewer than a
 * quarter, so as long as the delay is short.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { readAnswer } from '../load/answer.ts';
import type { RoundTrips } from '../result.ts';
import type { Link } from './link.ts';

/** Before the first that count: connections are opened, statements are prepared, Redis hears of the sale. */
const warmUpAttempts = 10;
const countedAttempts = 50;
const attempts = warmUpAttempts + countedAttempts;
/** Units that the sale must have at least: where a part of the stock has its own counter, none of them may run empty. */
export const unitsForRoundTrips = 100 * attempts;

/** Longer than an answer takes from the service to here, and the count to be asked for; most often that is 1 ms. */
const rttMs = 5;
const leftoversMs = 3 * rttMs;
const timeoutMs = 10_000;

/**
 * For each accepted attempt, rounded to a tenth; by attempts one after the other, each of a customer of its own.
 * @param url where the service answers, without a path; its stores are those of `link`
 * @throws when an attempt is not accepted: another outcome has other ways
 */
export async function measureRoundTrips(link: Link, url: string, saleId: number): Promise<RoundTrips> {
  const counts: RoundTrips[] = [];
  const rttBefore = link.rttMs;
  await link.delay(rttMs);
  try {
    for (let i = 0; i < attempts; i++) {
      await sleep(leftoversMs);
      await link.reset();
      await attempt(url, saleId, `lone-${i}`);
      const count = await link.roundTrips();
      if (i >= warmUpAttempts) counts.push(count);
    }
  } finally {
    await link.delay(rttBefore);
  }
  return {
    redis: usual(counts.map(({ redis }) => redis)),
    postgres: usual(counts.map(({ postgres }) => postgres)),
  };
}

async function attempt(url: string, saleId: number, userId: string): Promise<void> {
  const answer = await fetch(`${url}/sales/${saleId}/orders`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ userId }),
    signal: AbortSignal.timeout(timeoutMs),
  });
  const body = await answer.text();
  if (readAnswer(answer.status, body).outcome === 'accepted') return;
  throw new Error(`a lone attempt was not accepted, but answered with ${answer.status}: ${body}`);
}

/** The mean of the middle half. */
function usual(counts: readonly number[]): number {
  const quarter = Math.floor(counts.length / 4);
  const middle = [...counts].sort((a, b) => a - b).slice(quarter, counts.length - quarter);
  return Math.round((middle.reduce((sum, count) => sum + count, 0) / middle.length) * 10) / 10;
}
