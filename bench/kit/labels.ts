/**
 * Places the labels of vertical marks in rows above a chart. Pure. A line rises from each mark to its label's row:
 *
 *   row 0   ┌ fault
 *   row 1   │  ┌ recovered        No label lies on another one or on a line, and none leaves the chart.
 *           │  │                  A label that fits nowhere is shortened, or left out: a legend names its color.
 *   chart   │  │
 */

export interface Label {
  /** Where its mark is. */
  readonly at: number;
  /** Its texts from the longest to the shortest, with their widths. */
  readonly texts: readonly (readonly [text: string, width: number])[];
}

export interface Place {
  readonly text: string;
  readonly left: number;
  readonly right: number;
  /** 0 is the uppermost. */
  readonly row: number;
}

export interface Space {
  readonly left: number;
  readonly right: number;
  readonly rows: number;
  /** Between a mark and its label, and between a label and whatever is next in its row. */
  readonly gap: number;
}

/**
 * Marks at the right come first, and take the lowest row: the label of one further left passes above their lines.
 * @returns for each label its place; null: it is left out
 */
export function placeLabels(labels: readonly Label[], space: Space): (Place | null)[] {
  const places: (Place | null)[] = labels.map(() => null);
  const order = labels.map((_, n) => n).sort((a, b) => labels[b]!.at - labels[a]!.at || b - a);
  for (const n of order) {
    const isFree = (place: Place) =>
      labels.every((other, m) => m === n || !collides(labels[n]!.at, place, other.at, places[m]!, space.gap));
    places[n] = candidates(labels[n]!, space).find(isFree) ?? null;
  }
  return places;
}

/** Each text to the right of the mark, in each row from the lowest, and then each to its left, which takes the room of others. */
function candidates({ at, texts }: Label, { left, right, rows, gap }: Space): Place[] {
  const all = texts.flatMap(([text, width]) =>
    [at + gap, at - gap - width].flatMap((from) =>
      Array.from({ length: rows }, (_, n) => ({ text, row: rows - 1 - n, left: from, right: from + width })),
    ),
  );
  const fitting = all.filter((place) => place.left >= left && place.right <= right);
  return fitting.sort((a, b) => Number(a.left < at) - Number(b.left < at));
}

/** @param other null: its mark has no line above the chart */
function collides(at: number, place: Place, otherAt: number, other: Place | null, gap: number): boolean {
  if (other === null) return false;
  const overlap = other.left < place.right + gap && place.left < other.right + gap && other.row === place.row;
  const on = (x: number, { left, right }: Place) => left < x + gap && x - gap < right;
  // A line passes the rows from its label's down.
  return (
    overlap || (other.row <= place.row && on(otherAt, place)) || (place.row <= other.row && on(at, other))
  );
}

/** Which ticks of an axis have room for their texts, in order: the first one, and each that is far enough from the last. */
export function placeTicks<T>(ticks: readonly T[], at: (tick: T) => number, least: number): T[] {
  let last = Number.NEGATIVE_INFINITY;
  return ticks.filter((tick) => {
    if (at(tick) - last < least) return false;
    last = at(tick);
    return true;
  });
}
