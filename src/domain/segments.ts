/** The arithmetic of a stock that is split into segments. Pure. */

/** The segment of all of a customer's attempts: FNV-1a of the user id, modulo the number of segments. */
export function homeSegment(userId: string, segments: number): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < userId.length; i++) {
    hash = Math.imul(hash ^ userId.charCodeAt(i), 0x01000193);
  }
  return (hash >>> 0) % segments;
}

/**
 * The segment that an empty home borrows from: the first one with a unit after the home, so that borrowers from different homes
 * start at different segments.
 * @returns null when no segment has a unit
 */
export function lenderOf(home: number, units: readonly number[]): number | null {
  for (let step = 1; step <= units.length; step++) {
    const segment = (home + step) % units.length;
    if ((units[segment] ?? 0) > 0) return segment;
  }
  return null;
}
