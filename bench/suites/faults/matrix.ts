/** The matrix of the locks: for each fault the worst of its trials. */
import { lockFaults } from '../../faults/registry.ts';
import { quantity } from '../../kit/report/numbers.ts';
import type { Lanes, Matrix, MatrixCell } from '../../kit/suite.ts';
import type { FaultResult, LockTrial } from './history.ts';

const words: readonly LockTrial['word'][] = ['one holder', 'fenced', 'stuck', 'two holders'];
const tones = { 'one holder': 'good', fenced: 'fair', stuck: 'bad', 'two holders': 'bad' } as const;

export function matrixOf(results: readonly FaultResult[]): Matrix {
  const names = [...new Set(results.map(({ cell }) => cell))];
  const faults = lockFaults.filter(({ name }) => results.some(({ outcomes }) => name in outcomes));
  return {
    title: 'Every lock under every fault',
    noun: 'lock',
    passed: 'let no late write through and served every client, under every fault that they met',
    columns: faults.map(({ title, happens }) => ({ title, help: happens })),
    rows: names.map((name) => ({
      name,
      cells: faults.map((fault) =>
        cellOf(
          results.filter(({ cell }) => cell === name).flatMap(({ outcomes }) => outcomes[fault.name] ?? []),
        ),
      ),
    })),
  };
}

const severity = ({ word, twoHoldersMs, idleMs }: LockTrial): number =>
  words.indexOf(word) * 1e6 + twoHoldersMs * 10 + idleMs / 1e3;

function cellOf(outcomes: readonly (LockTrial | string)[]): MatrixCell {
  const trials = outcomes.filter((one) => typeof one !== 'string').sort((a, b) => severity(a) - severity(b));
  const worst = trials.at(-1);
  if (worst === undefined) {
    const why = outcomes.find((one) => typeof one === 'string') ?? 'not run';
    return { tone: 'none', word: '–', figure: '', text: `Not tried: ${why}.`, picture: null };
  }
  const { word } = worst;
  const middle = trials[Math.floor((trials.length - 1) / 2)]!;
  return {
    tone: tones[word],
    word,
    figure: figureOf(worst),
    text: textOf(worst, middle, trials),
    picture: pictureOf(worst),
  };
}

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(ms < 9_950 ? 1 : 0)} s`;

/** How long two clients held it, or how long it was free. */
const figureOf = ({ word, twoHoldersMs, lateWrites, idleMs }: LockTrial): string => {
  if (word === 'stuck') return '';
  if (word === 'one holder') return idleMs < 50 ? '' : `free ${seconds(idleMs)}`;
  return twoHoldersMs < 50 ? quantity(lateWrites, 'late write') : seconds(twoHoldersMs);
};

const tolds = {
  'in time': 'The holder was told of the loss before it wrote again.',
  late: 'The holder was told of the loss after its first late write.',
  never: 'The holder was never told.',
} as const;

/** The worst trial in words, and how often each verdict came. */
function textOf(worst: LockTrial, middle: LockTrial, trials: readonly LockTrial[]): string {
  const { word, twoHoldersMs, told, lateWrites, fencedWrites, idleMs, refused } = worst;
  const counts = words.flatMap((one) => {
    const n = trials.filter((trial) => trial.word === one).length;
    return n === 0 ? [] : [`${one} ${n}`];
  });
  const fence = fencedWrites === 0 ? 'the fence refused all' : `${fencedWrites} of them passed a fence`;
  const story = {
    'one holder': `One holder at a time. Nobody held the lock for up to ${seconds(idleMs)} while others waited.`,
    stuck: `A client that waits was not served until the end, ${seconds(idleMs)} later.`,
    fenced: `Two holders for ${seconds(twoHoldersMs)} (median ${seconds(middle.twoHoldersMs)}); ${lateWrites} late writes, ${fence}.`,
    'two holders': `Two holders for ${seconds(twoHoldersMs)} (median ${seconds(middle.twoHoldersMs)}); ${lateWrites} late writes, ${fence}.`,
  }[word];
  const without = refused === null ? '' : ` The lock refused the first client: ${refused}.`;
  const notice = told === null ? '' : ` ${tolds[told]}`;
  return `${story}${without}${notice} ${quantity(trials.length, 'trial')}: ${counts.join(', ')}.`;
}

function pictureOf({ lanes, band, endMs }: LockTrial): Lanes {
  const whole = (ms: number): number => Math.round(ms);
  return {
    endMs: whole(endMs),
    band: [whole(band[0]), whole(band[1])],
    lanes: lanes.map(({ client, asked, held, lost }) => ({
      name: client,
      spans: held.map(([from, to]) => [whole(from), whole(to)] as const),
      marks: [
        ...(asked === null || held.length > 0 ? [] : [[whole(asked), 'asks'] as const]),
        ...(lost === null ? [] : [[whole(lost), 'told'] as const]),
      ],
    })),
  };
}
