/** One lane: strategy, units, chart of accepted attempts, answers, and finally the verdict. */

import { count } from '../../../src/web/ui/format.ts';
import { Bar, Pill, type Tone } from '../../../src/web/ui/parts.tsx';
import { isRight, type LaneView, type RaceView, recoveryText, verdictText } from '../view.ts';
import { type Scale, Track } from './track.tsx';

interface LaneProps {
  readonly lane: LaneView;
  readonly race: RaceView;
  readonly scale: Scale;
}

export function LaneRow({ lane, race, scale }: LaneProps) {
  const { strategy, summary, accepted, soldOut, busy, unknown, unsent } = lane;
  const { units } = race.options;
  const left = units - (lane.verdict?.sold ?? accepted);
  const answers = { accepted, 'sold out': soldOut, busy, unknown, ...(unsent > 0 ? { unsent } : {}) };
  return (
    <section class={`lane card${left < 0 ? ' over' : ''}`} aria-label={strategy}>
      <div class="who">
        <h2>{strategy}</h2>
        <p class="small soft">{summary}</p>
      </div>
      <div class="left">
        <p class="numeral">{left < 0 ? `−${count(-left)}` : count(left)}</p>
        <p class="label">{left < 0 ? 'sold, not in stock' : `of ${count(units)} units left`}</p>
        <Bar
          label={`Units left of ${strategy}`}
          value={left < 0 ? units : left}
          max={units}
          isStock={left >= 0}
        />
      </div>
      <Track lane={lane} race={race} scale={scale} label={trackLabel(lane, race)} />
      <dl class="answers">
        {Object.entries(answers).map(([name, n]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{count(n)}</dd>
          </div>
        ))}
      </dl>
      <Verdict lane={lane} race={race} />
    </section>
  );
}

/** The audit's verdict; before it, the state of the lane. */
function Verdict({ lane, race: { phase, strikes } }: Pick<LaneProps, 'lane' | 'race'>) {
  const { verdict, outages, allSoldMs, isReady } = lane;
  const notes = outages.map((outage, n) => `${strikes[n]?.title ?? ''}: ${recoveryText(outage)}.`);
  const isStopped = outages.some((one) => one.isStopped);
  const [tone, text]: [Tone, string] =
    verdict !== null
      ? [isRight(verdict) ? 'good' : verdict.word === 'not audited' ? 'warn' : 'bad', verdictText(verdict)]
      : isStopped
        ? ['bad', 'stopped']
        : phase === 'auditing'
          ? ['warn', 'audit']
          : phase === 'running'
            ? [allSoldMs === null ? 'good' : 'plain', allSoldMs === null ? 'selling' : 'sold out']
            : ['plain', isReady ? 'ready' : 'waiting'];
  const sold = allSoldMs === null ? '' : `Sold out at ${(allSoldMs / 1_000).toFixed(1)} s. `;
  return (
    <div class="verdict">
      <Pill tone={tone}>{text}</Pill>
      <p class="small soft">
        {verdict !== null && `${verdict.sentence} `}
        {verdict === null && sold}
        {notes.join(' ')}
      </p>
    </div>
  );
}

function trackLabel(
  { accepted, allSoldMs, strategy, outages }: LaneView,
  { options, strikes }: RaceView,
): string {
  const over = Math.max(0, accepted - options.units);
  return [
    `${strategy}, accepted over time: ${count(accepted)} of ${count(options.units)} units`,
    ...(allSoldMs === null ? [] : [`sold out at ${(allSoldMs / 1_000).toFixed(1)} seconds`]),
    ...(over === 0 ? [] : [`${count(over)} oversold`]),
    ...outages.map((outage, n) => `${strikes[n]?.title}: ${recoveryText(outage)}`),
  ].join(', ');
}
