/** The chart of accepted/s as a file of its own, for pages that take pictures only. */
import { palette } from '../page/style.ts';
import type { Results } from '../results.ts';
import { acceptedFigure } from './accepted.ts';
import { frames } from './drawing.ts';

/** An SVG file: its colours follow the light or dark scheme of whoever looks. @throws when nothing was accepted */
export function chartFile({ summary }: Pick<Results, 'summary'>): string {
  const figure = acceptedFigure(summary.filter(({ twin }) => !twin));
  const [frame] = frames;
  if (figure === null || frame === undefined) throw new Error('there is nothing to draw');
  const { id, title, finding, caption } = figure;
  const { text } = figure.draw(frame, { id, title, text: `${finding} ${caption}` });
  const style =
    `<style>svg{${palette.light};font-family:system-ui,sans-serif;background:var(--paper)}` +
    `@media (prefers-color-scheme:dark){svg{${palette.dark}}}</style>`;
  return `${text.replace('<svg ', '<svg xmlns="http://www.w3.org/2000/svg" ').replace('</desc>', `</desc>${style}`)}\n`;
}
