/**
 * Searches a proof of work in a worker, so that the page stays responsive: a nonce for which the SHA-256 of `<challenge>.<nonce>`
 * begins with `bits` zero bits. The browser's built-in SHA-256 is asynchronous, and each call costs many times the hash itself.
 */
import { sha256 } from '@noble/hashes/sha2.js';
import { utf8ToBytes } from '@noble/hashes/utils.js';

interface Task {
  readonly challenge: string;
  readonly bits: number;
}

function hasZeroBits(hash: Uint8Array, bits: number): boolean {
  const bytes = bits >> 3;
  for (let i = 0; i < bytes; i++) if (hash[i] !== 0) return false;
  return (hash[bytes] ?? 0) >> (8 - (bits & 7)) === 0;
}

addEventListener('message', ({ data }: MessageEvent<Task>) => {
  const { challenge, bits } = data;
  for (let n = 0; ; n++) {
    const nonce = n.toString(36);
    if (hasZeroBits(sha256(utf8ToBytes(`${challenge}.${nonce}`)), bits)) return postMessage(nonce);
  }
});
