/** A matrix as a grid of words and colors. Each cell with a history links to its picture, which opens below the grid. */
import { placeTicks } from '../labels.ts';
import type { Lanes, Matrix, MatrixCell } from '../suite.ts';
import { html, Markup, nothing } from './markup.ts';
import { palette } from './palette.ts';

export function matrixGrid(id: string, { title, noun, columns, rows }: Matrix): Markup {
  const place = (row: number, column: number): string => `${id}-${row}-${column}`;
  const head = columns.map(
    (column) => html`<th scope="col" title="${plain(column.help)}">${column.title}</th>`,
  );
  const body = rows.map(
    ({ name, cells }, row) =>
      html`<tr><th scope="row">${name}</th>${cells.map((cell, n) => gridCell(cell, place(row, n)))}</tr>`,
  );
  const histories = rows.flatMap(({ name, cells }, row) =>
    cells.flatMap((cell, n) => {
      if (cell.picture === null) return [];
      const { title: fault, help } = columns[n]!;
      return html`<figure class="history" id="${place(row, n)}"><h4>${name}: ${fault}</h4><p>${plain(help)}</p>${lanesPicture(cell.picture)}<p>${cell.text}</p></figure>`;
    }),
  );
  return html`<p class="hint">↔ The table scrolls sideways.</p><div class="scroll" role="region" tabindex="0" aria-label="${title}"><table class="matrix"><thead><tr><th scope="col">${noun}</th>${head}</tr></thead><tbody>${body}</tbody></table></div>${histories}`;
}

/** Removes the backticks of Markdown. */
const plain = (text: string): string => text.replaceAll('`', '');

function gridCell({ tone, word, figure, text, picture }: MatrixCell, target: string): Markup {
  const content = html`${word}${figure === '' ? nothing : html`<small>${figure}</small>`}`;
  return picture === null
    ? html`<td><span title="${text}">${content}</span></td>`
    : html`<td><a class="${tone}" href="#${target}" title="${text}">${content}</a></td>`;
}

const width = 720;
/** Around a picture. */
const margin = 8;
/** Texts have 11 px and more on a phone, where the picture is 358 px wide. */
const lane = { width: 500, height: 28, bar: 16, legend: 28 };

const inPage =
  '.band{fill:var(--fairband)}.held{fill:var(--blue)}.two{fill:var(--bad)}.mark{stroke:var(--ink);stroke-width:1.5}';
const style = `svg{${palette.light}font:16px system-ui,sans-serif;background:var(--paper)}text{fill:var(--soft)}${inPage}@media(prefers-color-scheme:dark){svg{${palette.dark}}}`;

/** A history as an SVG file, for pages that only show pictures; null: there is none. */
export function pictureFile({ columns, rows }: Matrix, name: string, column: string): string | null {
  const at = columns.findIndex(({ title }) => title === column);
  const picture = rows.find((row) => row.name === name)?.cells[at]?.picture ?? null;
  return picture && `${lanesPicture(picture, new Markup(`<style>${style}</style>`)).text}\n`;
}

/** Places of the grid's parts, for a picture of `width`; its texts have 12 px on a phone, where it is half as wide. */
const grid = { left: 316, head: 396, row: 32, font: 24, legend: 44 };

/** A whole matrix as an SVG file: in each cell the initial of its verdict, on its color, with a legend above; empty: not tried. */
export function gridFile({ title, columns, rows }: Matrix): string {
  const column = Math.floor((width - grid.left) / columns.length);
  const tones = new Map(rows.flatMap(({ cells }) => cells.map(({ word, tone }) => [word, tone] as const)));
  const words = [...tones].filter(([word]) => word !== '–').sort(([a], [b]) => a.localeCompare(b));
  /** After a word of the same tone, a word has another color. */
  const isOther = ([, tone]: readonly string[], n: number) => words.findIndex((one) => one[1] === tone) < n;
  const kinds = new Map(words.map((one, n) => [one[0], isOther(one, n) ? 'other' : one[1]]));
  const square = (x: number, y: number, word: string): Markup =>
    word === '–'
      ? nothing
      : html`<rect class="${kinds.get(word) ?? ''}" x="${x + 1}" y="${y + 1}" width="${column - 2}" height="${grid.row - 2}" rx="3"/><text x="${x + column / 2}" y="${y + 24}" text-anchor="middle" class="on ${kinds.get(word) ?? ''}">${word[0]!.toUpperCase()}</text>`;
  const legend = words.map(
    ([word], n) => html`${square(n * 182, 2, word)}<text x="${n * 182 + column + 6}" y="26">${word}</text>`,
  );
  const top = grid.legend + grid.head;
  const heads = columns.map(({ title: name }, n) => {
    const x = grid.left + n * column + column / 2 + 8;
    return html`<text transform="translate(${x} ${top - 8}) rotate(-90)">${name}</text>`;
  });
  const lines = rows.map(({ name, cells }, n) => {
    const y = top + n * grid.row;
    return html`<text x="${grid.left - 8}" y="${y + 24}" text-anchor="end">${name}</text>${cells.map(({ word }, at) => square(grid.left + at * column, y, word))}`;
  });
  const css = `svg{${palette.light}font:${grid.font}px system-ui,sans-serif;background:var(--paper)}text{fill:var(--ink)}.good{fill:var(--goodband)}.fair{fill:var(--fairband)}.bad{fill:var(--badband)}.other{fill:var(--bad)}.on{fill:var(--ink)}.on.other{fill:var(--paper)}@media(prefers-color-scheme:dark){svg{${palette.dark}}}`;
  const height = top + rows.length * grid.row + 4;
  return `${html`<svg xmlns="http://www.w3.org/2000/svg" viewBox="${-margin} ${-margin} ${width + 2 * margin} ${height + 2 * margin}" role="img" aria-label="${title}"><style>${new Markup(css)}</style>${legend}${heads}${lines}</svg>`.text}
`;
}

/** One line for each client: when it held, when a loss was signalled. Overlaps are red if `exclusive`. */
function lanesPicture({ endMs, band, exclusive, lanes }: Lanes, head = nothing): Markup {
  const left = 16 + 9 * Math.max(...lanes.map(({ name }) => name.length));
  const x = (ms: number): number => Math.round((left + (ms / endMs) * (lane.width - left - 16)) * 10) / 10;
  const bottom = lane.legend + lanes.length * lane.height + 6;
  const all = lanes.map(({ spans }) => spans);
  const rows = lanes.map(({ name, spans, marks }, n) => {
    const y = lane.legend + n * lane.height + 6;
    const bar = (from: number, to: number, kind: string): Markup =>
      html`<rect class="${kind}" x="${x(from)}" y="${y}" width="${Math.max(1.5, Math.round((x(to) - x(from)) * 10) / 10)}" height="${lane.bar}"/>`;
    const others = exclusive ? all.filter((other) => other !== spans).flat() : [];
    const shared = spans.flatMap(([from, to]) =>
      others
        .filter(([a, b]) => Math.min(to, b) > Math.max(from, a))
        .map(([a, b]) => bar(Math.max(from, a), Math.min(to, b), 'two')),
    );
    const lines = marks.map(
      ([at, what]) =>
        html`<path class="mark" d="M${x(at)} ${y - 3}v${lane.bar + 6}"><title>${what}</title></path>`,
    );
    return html`<text x="2" y="${y + lane.bar - 1}">${name}</text>${spans.map(([from, to]) => bar(from, to, 'held'))}${shared}${lines}`;
  });
  const seconds = Array.from({ length: Math.floor(endMs / 1_000) + 1 }, (_, s) => s);
  const ticks = placeTicks(seconds, (s) => x(s * 1_000), 40).map(
    (s) => html`<text x="${x(s * 1_000)}" y="${bottom + 15}" text-anchor="middle">${s} s</text>`,
  );
  const words = lanes.map(({ name, spans }) => `${name} held ${spans.length} times`).join(', ');
  return html`<svg xmlns="http://www.w3.org/2000/svg" width="${lane.width + 2 * margin}" viewBox="${-margin} ${-margin} ${lane.width + 2 * margin} ${bottom + 20 + 2 * margin}" role="img" aria-label="${words}">${head}${lanesLegend(exclusive, lanes)}<rect class="band" x="${x(band[0])}" y="${lane.legend}" width="${Math.max(2, x(band[1]) - x(band[0]))}" height="${bottom - lane.legend}"/>${rows}${ticks}</svg>`;
}

function lanesLegend(exclusive: boolean, lanes: Lanes['lanes']): Markup {
  const marks = [...new Set(lanes.flatMap((one) => one.marks.map(([, what]) => what)))].join(', ');
  const swatch = (kind: string, x: number): Markup =>
    html`<rect class="${kind}" x="${x}" y="5" width="14" height="14"/>`;
  const line = (x: number): Markup => html`<path class="mark" d="M${x + 7} 2v20"/>`;
  const items: readonly (readonly [name: string, sign: (x: number) => Markup])[] = [
    [exclusive ? 'holds' : 'answers', (x) => swatch('held', x)],
    ...(exclusive ? [['two hold', (x: number) => swatch('two', x)] as const] : []),
    ['fault', (x) => swatch('band', x)],
    ...(marks === '' ? [] : [[marks, line] as const]),
  ];
  return html`${items.map(([name, sign], n) => html`${sign(2 + n * 118)}<text x="${21 + n * 118}" y="18">${name}</text>`)}`;
}
