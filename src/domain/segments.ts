/** The arithmetic of a stock that is split into segments. Pure. */

/** The segment of all of a customer's attempts: FNV-1a of the user id, modulo the number of segments. */
export function homeSegment(userId: string, segments: number): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < userId.length; i++) {
    hash = Math.imul(hash ^ userId.charCodeAt(i), 0x01000193);
  }
  return (hash >>> 0) % segments;
}

/** Units to take from one segment. */
export interface Part {
  readonly segment: number;
  readonly units: number;
}

/**
 * The segments that an order takes its units from when its home has too few: what the home has, and the rest from those after it, so
 * that borrowers from different homes start at different segments.
 * @param units free in each segment
 * @returns the home's part first, perhaps of no unit; null when all segments together have too few
 */
export function partsOf(home: number, units: readonly number[], quantity: number): Part[] | null {
  const parts: Part[] = [];
  let left = quantity;
  for (let step = 0; step < units.length && left > 0; step++) {
    const segment = (home + step) % units.length;
    const part = Math.min(left, Math.max(0, units[segment]!));
    if (part > 0 || step === 0) parts.push({ segment, units: part });
    left -= part;
  }
  return left > 0 ? null : parts;
}
