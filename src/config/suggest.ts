/** What a person may have meant by a name that is not known. */

/** The known name that is nearest, in upper or lower case; null when none is near. */
export function nearest(name: string, known: readonly string[]): string | null {
  const [first] = known
    .map((candidate) => ({ candidate, distance: editDistance(name.toLowerCase(), candidate) }))
    .sort((a, b) => a.distance - b.distance);
  if (first === undefined) return null;
  return first.distance <= Math.max(2, Math.floor(name.length / 3)) ? first.candidate : null;
}

/** The end of an error message: `; did you mean "lua"?`, or all names when none is near. */
export function suggestion(name: string, known: readonly string[]): string {
  const near = nearest(name, known);
  if (near !== null) return `; did you mean "${near}"?`;
  return known.length === 0 ? '' : `; there are ${known.join(', ')}`;
}

/** Levenshtein distance, one row at a time. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const substituted = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(substituted, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
