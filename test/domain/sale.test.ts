/** How pages order and describe sales. */
import { expect, it } from 'vitest';
import { groupedSales, type SaleState, stockText } from '../../src/domain/sale.ts';

const at = (hour: number) => new Date(Date.UTC(2026, 0, 1, hour)).toISOString();
const sale = (
  id: number,
  state: SaleState,
  startsAt: string | null = null,
  endsAt: string | null = null,
) => ({
  ...{ id, state, startsAt, endsAt },
});

it('a list has parts, and in each what opens or ends next comes first; a paused sale comes after those that open', () => {
  const listed = [
    ...[
      sale(9, 'ended', null, at(1)),
      sale(8, 'paused', null, at(5)),
      sale(7, 'open'),
      sale(6, 'scheduled', at(9)),
    ],
    ...[
      sale(5, 'open', null, at(8)),
      sale(4, 'open', null, at(7)),
      sale(3, 'sold-out'),
      sale(2, 'scheduled', at(6)),
    ],
  ];
  const groups = groupedSales(listed).map(([title, sales]) => [title, ...sales.map(({ id }) => id)]);
  expect(groups).toEqual([
    ['Now', 4, 5, 7],
    ['Coming up or paused', 2, 6, 8],
    ['Sold out or ended', 3, 9],
  ]);
  expect(groupedSales([sale(1, 'open')]).map(([title]) => title)).toEqual(['Now']);
});

it.each<[string, number, number, SaleState]>([
  ['1,200 units', 1_200, 0, 'scheduled'],
  ['1,079 of 1,200 left', 1_200, 121, 'open'],
  ['Only 120 left', 1_200, 1_080, 'open'],
  ['1 of 1 left', 1, 0, 'paused'],
  ['Sold out', 3, 3, 'sold-out'],
  ['Sold out', 3, 4, 'open'],
  ['1 of 3 sold', 3, 1, 'ended'],
])('%s', (text, stock, sold, state) => {
  expect(stockText({ stock, sold, remaining: stock - sold }, state)).toBe(text);
});
