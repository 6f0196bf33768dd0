/** The proof of work that a ticket may need. */
import { createHash } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import { zeroBits } from '../../src/access/bot-check.ts';

/** Services of this process answer meanwhile. @param refused the problem `proof-required` */
export async function solve(refused: object): Promise<{ challenge: string; nonce: string }> {
  const { challenge, bits } = refused as { challenge: string; bits: number };
  for (let nonce = 0; ; nonce++) {
    if (nonce % 1_000 === 0) await turn();
    const hash = createHash('sha256').update(`${challenge}.${nonce}`).digest();
    if (zeroBits(hash) >= bits) return { challenge, nonce: String(nonce) };
  }
}
