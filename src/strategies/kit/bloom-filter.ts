/** A set with about one false positive in a few hundred, and no false negatives. */
export class BloomFilter {
  readonly #bits: Uint32Array;
  readonly #mask: number;

  /** @param members its capacity: eight to sixteen bits for each */
  constructor(members: number) {
    const bits = 2 ** Math.min(31, Math.max(10, Math.ceil(Math.log2(8 * Math.max(1, members)))));
    this.#bits = new Uint32Array(bits / 32);
    this.#mask = bits - 1;
  }

  add(text: string): void {
    const [first, second] = hashes(text);
    for (let i = 0; i < 6; i++) {
      const bit = ((first + Math.imul(i, second)) >>> 0) & this.#mask;
      this.#bits[bit >>> 5]! |= 1 << (bit & 31);
    }
  }

  has(text: string): boolean {
    const [first, second] = hashes(text);
    for (let i = 0; i < 6; i++) {
      const bit = ((first + Math.imul(i, second)) >>> 0) & this.#mask;
      if ((this.#bits[bit >>> 5]! & (1 << (bit & 31))) === 0) return false;
    }
    return true;
  }
}

/** FNV-1a, and a second hash made from it by Murmur's finalizer; odd, so that its multiples reach every bit. */
function hashes(text: string): [number, number] {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  let mixed = hash ^ (hash >>> 16);
  mixed = Math.imul(mixed, 0x85ebca6b);
  mixed ^= mixed >>> 13;
  mixed = Math.imul(mixed, 0xc2b2ae35);
  return [hash >>> 0, ((mixed ^ (mixed >>> 16)) >>> 0) | 1];
}
