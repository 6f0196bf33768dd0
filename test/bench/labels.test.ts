/** Labels of charts, with random marks: none lies on another one or on a line, and none leaves the chart. */
import { expect, it } from 'vitest';
import { type Label, type Place, placeLabels, placeTicks, type Space } from '../../bench/kit/labels.ts';
import { seededRandom } from '../../lab/kit/random.ts';

function drawn(seed: number): { readonly labels: Label[]; readonly space: Space } {
  const random = seededRandom(seed);
  const space = { left: 30, right: 30 + 200 + random() * 1_600, rows: 1 + Math.floor(random() * 4), gap: 5 };
  const labels = Array.from({ length: Math.floor(random() * 12) }, () => {
    const width = 20 + random() * 160;
    const texts = [['whole', width] as const, ['short', width * random()] as const];
    return { at: space.left + random() * (space.right - space.left), texts };
  });
  return { labels, space };
}

/** What is wrong with places. */
function mistakes(labels: readonly Label[], places: readonly (Place | null)[], space: Space): string[] {
  const shown = places.flatMap((place, n) => (place === null ? [] : [{ ...place, at: labels[n]!.at, n }]));
  return shown.flatMap((one) => {
    const isOutside =
      one.left < space.left || one.right > space.right || one.row < 0 || one.row >= space.rows;
    return [
      ...(isOutside ? [`${one.n} leaves the chart`] : []),
      ...shown.flatMap((other) => {
        const isOn = one.row === other.row && one.left < other.right && other.left < one.right;
        const isCrossed = other.row <= one.row && one.left < other.at && other.at < one.right;
        return [
          ...(one.n < other.n && isOn ? [`${one.n} lies on ${other.n}`] : []),
          ...(isCrossed ? [`the line of ${other.n} crosses ${one.n}`] : []),
        ];
      }),
    ];
  });
}

it('no label lies on another one or on a line, and none leaves the chart', () => {
  for (let seed = 0; seed < 3_000; seed++) {
    const { labels, space } = drawn(seed);
    expect(mistakes(labels, placeLabels(labels, space), space), `seed ${seed}`).toEqual([]);
  }
});

it('a label is shortened where the whole one has no room, and left out where neither has', () => {
  const space = { left: 0, right: 100, rows: 1, gap: 5 };
  const label = (at: number): Label => ({ at, texts: [['whole', 80], ['short', 30]] }); // biome-ignore format: one line
  expect(placeLabels([label(5)], space)).toMatchObject([{ text: 'whole', left: 10, right: 90 }]);
  expect(placeLabels([label(45)], space)).toMatchObject([{ text: 'short', left: 50 }]);
  expect(placeLabels([label(45), label(52)], space).map((place) => place?.text)).toEqual(['short', 'short']);
  expect(placeLabels([label(49), label(50), label(51)], space)).toContain(null);
});

it('marks with room for all of their labels have them in rows that rise to the left', () => {
  const labels = [60, 88, 125].map((at): Label => ({ at, texts: [['whole', 110]] }));
  const places = placeLabels(labels, { left: 0, right: 300, rows: 3, gap: 5 });
  expect(places.map((place) => place?.row)).toEqual([0, 1, 2]);
});

it('ticks without room for their texts are left out', () => {
  expect(placeTicks([0, 1, 2, 3, 4], (tick) => tick * 10, 25)).toEqual([0, 3]);
});
