/** How strategies are told apart: colour, dashes and symbol together, so that none of them is needed alone. */
import { html, Markup } from '../page/markup.ts';

/** Colours are variables of the page, which has them for light and dark. */
export const ink = { text: 'var(--ink)', soft: 'var(--soft)', line: 'var(--line)', paper: 'var(--paper)' };

/** Of a line and its symbols. */
export interface Look {
  readonly colour: string;
  /** Lengths of dashes and gaps; empty: a solid line. */
  readonly dashes: readonly number[];
  readonly symbol: keyof typeof corners;
  readonly hollow: boolean;
}

/** Seven colours, three dashes and eight symbols: the first 168 differ, the first 24 without their colour. */
const colours = 7;
const dashes = [[], [7, 4], [2, 3]];
/** Corners, in a square from -1 to 1; a circle has none. */
const corners = {
  circle: [],
  rect: [
    [-1, -1],
    [1, -1],
    [1, 1],
    [-1, 1],
  ],
  triangle: [
    [0, -1],
    [1, 1],
    [-1, 1],
  ],
  diamond: [
    [0, -1],
    [1, 0],
    [0, 1],
    [-1, 0],
  ],
} satisfies Record<string, readonly (readonly [x: number, y: number])[]>;
const symbolNames = Object.keys(corners) as Look['symbol'][];

/** @param index of the strategy, the same in all drawings */
export function look(index: number): Look {
  return {
    colour: `var(--series-${index % colours})`,
    dashes: dashes[index % dashes.length] ?? [],
    symbol: symbolNames[index % symbolNames.length] ?? 'circle',
    hollow: index % (2 * symbolNames.length) >= symbolNames.length,
  };
}

/** Of what is not correct: the same grey dots for all, with a symbol of its own for each. */
export function wrongLook(index: number): Look {
  return { ...look(index), colour: 'var(--wrong)', dashes: [1, 4], hollow: true };
}

/** The look of each name, in order. */
export function looksOf(names: readonly string[]): ReadonlyMap<string, Look> {
  return new Map([...new Set(names)].map((name, index) => [name, look(index)]));
}

/** Corners of a look's symbol around a place; null: it is a circle. */
export function cornersOf({ symbol }: Look, x: number, y: number, radius: number): number[][] | null {
  const shape = corners[symbol].map(([right, down]) => [x + right * radius, y + down * radius]);
  return shape.length === 0 ? null : shape;
}

/** A piece of line for a legend. */
export function sample(look: Look): Markup {
  const { colour, dashes: lengths, hollow } = look;
  const shape = cornersOf(look, 22, 8, 4);
  const style = `fill:${hollow ? ink.paper : colour};stroke:${colour}`;
  const line = html`<path d="M1 8H43" style="stroke:${colour}" stroke-width="2" stroke-dasharray="${lengths.join(' ')}" fill="none"/>`;
  const mark =
    shape === null
      ? html`<circle cx="22" cy="8" r="4" style="${style}" stroke-width="1.5"/>`
      : html`<polygon points="${shape.join(' ')}" style="${style}" stroke-width="1.5"/>`;
  return html`<svg viewBox="0 0 44 16" width="44" height="16" aria-hidden="true">${line}${mark}</svg>`;
}

const hatchNames = ['wrong', 'slanted', 'dotted'] as const;
export type HatchName = (typeof hatchNames)[number];

/** What to fill with. */
export function hatch(name: HatchName): string {
  return `url(#hatch-${name})`;
}

const hatchContents: Readonly<Record<HatchName, string>> = {
  wrong: '<path d="M-1 7L7 -1" style="stroke:var(--wrong)" stroke-width="1.5"/>',
  slanted:
    '<rect width="6" height="6" style="fill:var(--series-1)" fill-opacity=".3"/><path d="M-1 7L7 -1M-4 4L4 -4M2 10L10 2" style="stroke:var(--series-1)" stroke-width="1.6"/>',
  dotted:
    '<rect width="6" height="6" style="fill:var(--series-2)" fill-opacity=".3"/><circle cx="3" cy="3" r="1.4" style="fill:var(--series-2)"/>',
};

/** The definitions of those hatches that a drawing fills with; `id` begins their ids. */
export function hatches(id: string, drawing: string): string {
  return hatchNames
    .filter((name) => drawing.includes(`url(#${id}-${name})`))
    .map((name) => pattern(`${id}-${name}`, name))
    .join('');
}

function pattern(id: string, name: HatchName): string {
  return `<defs><pattern id="${id}" width="6" height="6" patternUnits="userSpaceOnUse">${hatchContents[name]}</pattern></defs>`;
}

/** A piece of bar for a legend. */
export function barSample(id: string, fill: string, stroke: string): Markup {
  const name = hatchNames.find((candidate) => hatch(candidate) === fill);
  const [definition, own] = name === undefined ? ['', fill] : [pattern(id, name), `url(#${id})`];
  return new Markup(
    `<svg viewBox="0 0 28 14" width="28" height="14" aria-hidden="true">${definition}<rect x="1" y="1" width="26" height="12" style="fill:${own};stroke:${stroke}"/></svg>`,
  );
}
