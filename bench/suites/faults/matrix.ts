/** The matrices of locks and of strategies: a cell shows the worst of its trials. */
import { lockFaults } from '../../../lab/faults/lock-faults.ts';
import { strategyFaults } from '../../../lab/faults/strategy-faults.ts';
import { quantity } from '../../../lab/kit/text.ts';
import type { Lanes, Matrix, MatrixCell } from '../../kit/suite.ts';
import type { LockTrial } from './history.ts';
import type { FaultResult } from './result.ts';
import type { StrategyTrial } from './sale-verdict.ts';

/** Tones by verdict, the best verdict first. */
const tones = { 'one holder': 'good', fenced: 'fair', stuck: 'bad', 'two holders': 'bad' } as const;
const words = Object.keys(tones) as LockTrial['word'][];
const strategyTones = {
  kept: 'good',
  'not audited': 'fair',
  lost: 'fair',
  oversold: 'bad',
  broken: 'bad',
} as const;
const strategyWords = Object.keys(strategyTones);

/** The worst trial, and the one in the middle. */
function worstOf<Trial>(all: readonly Trial[], severity: (trial: Trial) => number) {
  const trials = [...all].sort((a, b) => severity(a) - severity(b));
  return { worst: trials.at(-1)!, middle: trials[Math.floor((trials.length - 1) / 2)]! };
}

/** The outcomes of one cell under one fault. */
type Of<Trial> = (Trial | string)[];

function matrixOf<Trial>(
  results: readonly FaultResult[],
  faults: readonly { readonly name: string; readonly title: string; readonly happens: string }[],
  words: Pick<Matrix, 'title' | 'noun' | 'passed'>,
  cellOf: (trials: readonly Trial[]) => MatrixCell,
): Matrix {
  const met = faults.filter(({ name }) => results.some(({ outcomes }) => name in outcomes));
  const outcomesOf = (name: string, fault: string): Of<Trial> =>
    results
      .filter(({ cell }) => cell === name)
      .flatMap(({ outcomes }) => (outcomes[fault] ?? []) as Trial | string);
  const cell = (outcomes: Of<Trial>): MatrixCell => {
    const trials = outcomes.filter((one): one is Exclude<Trial, string> => typeof one !== 'string');
    if (trials.length > 0) return cellOf(trials);
    const why = outcomes.find((one) => typeof one === 'string') ?? 'not run';
    return { tone: 'none', word: '–', figure: '', text: `Not tried: ${why}.`, picture: null };
  };
  return {
    ...words,
    columns: met.map(({ title, happens }) => ({ title, help: happens })),
    rows: [...new Set(results.map((result) => result.cell))].map((name) => ({
      name,
      cells: met.map((fault) => cell(outcomesOf(name, fault.name))),
    })),
  };
}

export function matricesOf(results: readonly FaultResult[]): Matrix[] {
  const of = (subject: FaultResult['subject']) => results.filter((result) => result.subject === subject);
  return [
    matrixOf(
      of('lock'),
      lockFaults,
      {
        title: 'Every lock under every fault',
        noun: 'lock',
        passed: 'let no late write through and served every client, under every fault that they met',
      },
      lockCell,
    ),
    matrixOf(
      of('strategy'),
      strategyFaults,
      {
        title: 'Every strategy under every fault',
        noun: 'strategy',
        passed: null,
      },
      strategyCell,
    ),
  ];
}

const severity = ({ word, twoHoldersMs, idleMs }: LockTrial): number =>
  words.indexOf(word) * 1e6 + twoHoldersMs * 10 + idleMs / 1e3;

function lockCell(trials: readonly LockTrial[]): MatrixCell {
  const { worst, middle } = worstOf(trials, severity);
  const { word } = worst;
  return {
    ...{ tone: tones[word], word, figure: figureOf(worst) },
    ...{ text: textOf(worst, middle, trials), picture: pictureOf(worst) },
  };
}

function strategyCell(trials: readonly StrategyTrial[]): MatrixCell {
  const severityOf = ({ word, silentMs }: StrategyTrial) => strategyWords.indexOf(word) * 1e6 + silentMs;
  const { worst, middle } = worstOf(trials, severityOf);
  const { word, silentMs, settledMs, unknown, unknownPlaced, errors, consistency, findings, picture } = worst;
  const story = [
    `Nothing was sold for ${seconds(silentMs)} (median ${seconds(middle.silentMs)}).`,
    unknown === 0
      ? ''
      : `${quantity(unknown, 'attempt')} had no known outcome; ${unknownPlaced} of them became orders.`,
    `Nothing was left between the stores ${seconds(settledMs)} after the load.`,
    consistency === null ? '' : `The history is ${consistency}.`,
    errors === 0 ? '' : `${quantity(errors, 'answer')} had a 5xx status other than 503.`,
    ...findings.slice(0, 2).map((finding) => `${finding}.`),
    `${quantity(trials.length, 'trial')}.`,
  ];
  const tone = word === 'kept' && errors > 0 ? 'fair' : strategyTones[word];
  return { tone, word, figure: seconds(silentMs), text: story.filter(Boolean).join(' '), picture };
}

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(ms < 9_950 ? 1 : 0)} s`;

/** How long two clients held the lock, or none did. */
const figureOf = ({ word, twoHoldersMs, lateWrites, idleMs }: LockTrial): string => {
  if (word === 'stuck') return '';
  if (word === 'one holder') return idleMs < 50 ? '' : `free ${seconds(idleMs)}`;
  return twoHoldersMs < 50 ? quantity(lateWrites, 'late write') : seconds(twoHoldersMs);
};

const signals = {
  'in time': 'The lock signalled the loss before its holder wrote again.',
  late: 'The lock signalled the loss after the first late write.',
  never: 'The lock never signalled the loss.',
} as const;

/** The worst trial in words, and the count of each verdict. */
function textOf(worst: LockTrial, middle: LockTrial, trials: readonly LockTrial[]): string {
  const { word, twoHoldersMs, signalled, lateWrites, fencedWrites, idleMs, refused } = worst;
  const counts = words.flatMap((one) => {
    const n = trials.filter((trial) => trial.word === one).length;
    return n === 0 ? [] : [`${one} ${n}`];
  });
  const fence = fencedWrites === 0 ? 'the fence refused all' : `${fencedWrites} of them passed a fence`;
  const story = {
    'one holder': `One holder at a time. No client held the lock for up to ${seconds(idleMs)} while others waited.`,
    stuck: `A client that waits was not served until the end, ${seconds(idleMs)} later.`,
    fenced: `Two holders for ${seconds(twoHoldersMs)} (median ${seconds(middle.twoHoldersMs)}); ${quantity(lateWrites, 'late write')}, ${fence}.`,
    'two holders': `Two holders for ${seconds(twoHoldersMs)} (median ${seconds(middle.twoHoldersMs)}); ${quantity(lateWrites, 'late write')}, ${fence}.`,
  }[word];
  const without = refused === null ? '' : ` The lock refused the first client: ${refused}.`;
  const notice = signalled === null ? '' : ` ${signals[signalled]}`;
  return `${story}${without}${notice} ${quantity(trials.length, 'trial')}: ${counts.join(', ')}.`;
}

function pictureOf({ lanes, band, endMs }: LockTrial): Lanes {
  const whole = (ms: number): number => Math.round(ms);
  return {
    endMs: whole(endMs),
    band: [whole(band[0]), whole(band[1])],
    exclusive: true,
    lanes: lanes.map(({ client, asked, held, lost }) => ({
      name: client,
      spans: held.map(([from, to]) => [whole(from), whole(to)] as const),
      marks: [
        ...(asked === null || held.length > 0 ? [] : [[whole(asked), 'requested'] as const]),
        ...(lost === null ? [] : [[whole(lost), 'loss signalled'] as const]),
      ],
    })),
  };
}
