/** The record of a race without a page: figures, a summary in Markdown, and a picture of the page. */
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { describeCommit, describeMachine, shortCommit } from '../../lab/kit/machine.ts';
import { number } from '../../lab/kit/text.ts';
import { takePictures } from '../kit/picture.ts';
import { markdownTable } from '../kit/report/text.ts';
import { writeWhole } from '../kit/results.ts';
import { type RaceView, recoveryText, verdictText } from './view.ts';

/** Writes race.json and race.md. @returns the summary */
export async function writeRecord(folder: string, startedAt: Date, view: RaceView): Promise<string> {
  const { cpu, cores, memoryBytes, os, node } = describeMachine({});
  const made = { startedAt: startedAt.toISOString(), commit: await describeCommit() };
  const record = { schema: 1, ...made, machine: { cpu, cores, memoryBytes, os, node }, ...view };
  await writeWhole(join(folder, 'race.json'), `${JSON.stringify(record)}\n`);
  const where = `Measured ${made.startedAt.slice(0, 16).replace('T', ' ')} UTC, commit ${shortCommit(made.commit)}, ${cores} cores (${cpu}), Node ${node}.`;
  const summary = summaryOf(view);
  await writeWhole(join(folder, 'race.md'), `# A race of strategies\n\n${summary}\n\n${where}\n`);
  return summary;
}

function summaryOf({ options, strikes, lanes }: RaceView): string {
  const { customers, units, rate, seed } = options;
  const faults = strikes.map(({ title, struckMs }) => `${title} at ${(struckMs / 1_000).toFixed(1)} s`);
  const head = `${number(customers)} customers for ${number(units)} units, ${number(rate)} a second, seed ${seed}.`;
  const columns = ['strategy', 'audit', 'accepted', 'sold out at', 'sold out', 'busy', 'unknown', 'unsent'];
  const rows = lanes.map((lane) => [
    `\`${lane.strategy}\``,
    lane.verdict === null ? '–' : verdictText(lane.verdict),
    number(lane.accepted),
    lane.allSoldMs === null ? '–' : `${(lane.allSoldMs / 1_000).toFixed(1)} s`,
    ...[lane.soldOut, lane.busy, lane.unknown, lane.unsent].map(number),
    ...lane.outages.map(recoveryText),
  ]);
  const titled = [...columns, ...faults].map(
    (title, n) => [title, n > 1 && n < columns.length ? 'right' : 'left'] as const,
  );
  return `${head}\n\n${markdownTable({ columns: titled, rows })}`;
}

/** CSS for a document, narrower than a screen: hides buttons, notes, counts and shadows. */
const still = `.desk, .row > .pill, .answers, main > p { display: none } .card { box-shadow: none }
  .lane { grid-template-columns: 196px 116px minmax(0, 1fr) 216px }`;
/** For a phone, which shows it as wide as it is: also hides sentences. */
const phone = `${still} .lane { grid-template-columns: minmax(0, 1fr) auto } .lane p.small, .left { display: none }
  .verdict { grid-area: 1 / 2 }`;

/** Takes pictures of a race that is done, for a screen and for a phone. @returns the names of the files; none when no Chromium is installed */
export async function pictureRace(url: string, folder: string): Promise<string[]> {
  const prepare = (page: Page) => page.locator('main[data-phase="done"]').waitFor();
  const shared = { url, fullPage: true, prepare };
  const wide = { style: still, viewport: { width: 1010, height: 600 } };
  const narrow = { style: phone, viewport: { width: 358, height: 600 }, scale: 2 };
  return [
    ...(await takePictures({ ...shared, ...wide, path: join(folder, 'race.png') })),
    ...(await takePictures({ ...shared, ...narrow, path: join(folder, 'race-phone.png') })),
  ];
}
