/** The page of a race: options, faults, and one lane per strategy. The serving process runs the race. */
import { computed, signal } from '@preact/signals';
import { render } from 'preact';
import { count } from '../../../src/web/ui/format.ts';
import { Field, Live, Notice, Pill } from '../../../src/web/ui/parts.tsx';
import { BIN_MS, type Choices, isRight, type RaceView, verdictText } from '../view.ts';
import { LaneRow } from './lane.tsx';
import './race.css';

const choices = JSON.parse(document.body.dataset.choices!) as Choices;
const view = signal<RaceView | null>(null);
/** Options chosen on the page; null: those of the race. */
const chosen = signal<RaceView['options'] | null>(null);
const problem = signal<string | null>(null);
const options = computed(() => chosen.value ?? view.value!.options);

const events = new EventSource('/events');
events.onmessage = ({ data }) => {
  view.value = JSON.parse(data);
  if (problem.value === GONE) problem.value = null;
};
const GONE = 'The process of the race has ended. Start it again: npm run race';
events.onerror = () => {
  problem.value = GONE;
};

async function send(command: 'start' | 'strike' | 'stop', body: object = {}): Promise<void> {
  const init = {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  };
  const answer = await fetch(`/${command}`, init).catch(() => null);
  const refused = answer === null ? GONE : answer.ok ? null : (await answer.json()).problem;
  problem.value = refused;
}

/** The state of the race in one sentence: the headline of the page and of the picture. */
function headline({ phase, lanes, options: { units }, strikes, elapsedMs }: RaceView): string {
  if (phase === 'idle') return 'Same stock, same customers. Which strategy sells what it does not have?';
  if (phase === 'preparing') {
    const ready = lanes.filter(({ isReady }) => isReady).length;
    return `Starting a service, a Postgres and a Redis for each lane: ${ready} of ${lanes.length} ready`;
  }
  if (phase === 'failed') return 'The race could not be run';
  const wrong = lanes.filter(({ verdict }) => verdict !== null && !isRight(verdict));
  const exact = lanes.filter(({ verdict }) => verdict?.word === 'exact').length;
  if (phase === 'done') {
    const failures = wrong.map(({ strategy, verdict }) => `${strategy} ${verdictText(verdict!)}`).join(', ');
    const left = lanes.filter(({ verdict }) => verdict?.word === 'units left').length;
    const others = left === 0 ? '' : `, ${left} right with units left`;
    return `${wrong.length === 0 ? '' : `${failures} · `}${exact} of ${lanes.length} sold exactly what they had${others}`;
  }
  if (phase === 'auditing') return 'The audit compares every answer with the stores';
  const last = strikes.at(-1);
  if (last?.isHealed === false) return `${last.title}: which strategies keep selling?`;
  const over = lanes.filter(({ accepted }) => accepted > units).map(({ strategy }) => strategy);
  const sold =
    over.length > 0 ? `${over.join(' and ')} oversells` : `${count(units)} units for sale in each lane`;
  return `${sold} · ${(elapsedMs / 1_000).toFixed(0)} s`;
}

const isBusy = ({ phase }: RaceView) => ['preparing', 'running', 'auditing'].includes(phase);

function Numbers({ disabled }: { disabled: boolean }) {
  return (['customers', 'units', 'rate'] as const).map((name) => (
    <Field key={name} label={{ customers: 'Customers', units: 'Units', rate: 'Customers/s' }[name]}>
      <input
        type="number"
        required
        disabled={disabled}
        min={choices.bounds[name][0]}
        max={choices.bounds[name][1]}
        value={options.value[name]}
        onInput={({ currentTarget }) => {
          chosen.value = { ...options.value, [name]: currentTarget.valueAsNumber };
        }}
      />
    </Field>
  ));
}

function Strategies({ disabled }: { disabled: boolean }) {
  const { strategies } = options.value;
  const toggle = (name: string, isOn: boolean): void => {
    const on = choices.strategies
      .map((one) => one.name)
      .filter((one) => one !== name && strategies.includes(one));
    const kept = strategies.filter((one) => on.includes(one));
    chosen.value = { ...options.value, strategies: isOn ? [...kept, name] : kept };
  };
  return (
    <details class="picker">
      <summary>{strategies.length} strategies</summary>
      <fieldset class="card" disabled={disabled}>
        <legend class="unseen">Strategies</legend>
        {choices.strategies.map(({ name }) => (
          <label key={name}>
            <input
              type="checkbox"
              checked={strategies.includes(name)}
              disabled={!strategies.includes(name) && strategies.length >= choices.bounds.lanes}
              onChange={({ currentTarget }) => toggle(name, currentTarget.checked)}
            />
            {name}
          </label>
        ))}
      </fieldset>
    </details>
  );
}

function Controls({ now }: { now: RaceView }) {
  const busy = isBusy(now);
  return (
    <form
      class="controls"
      onSubmit={(event) => {
        event.preventDefault();
        void (busy ? send('stop') : send('start', options.value));
      }}
    >
      <Strategies disabled={busy} />
      <Numbers disabled={busy} />
      <button type="submit" class={busy ? '' : 'primary'}>
        {busy ? 'Stop' : now.phase === 'done' ? 'Race again' : 'Start the race'}
      </button>
    </form>
  );
}

function Faults({ now: { phase, strikes } }: { now: RaceView }) {
  const mayStrike = phase === 'running' && strikes.at(-1)?.isHealed !== false;
  return (
    <fieldset class="faults row">
      <legend class="unseen">Inject a fault into all lanes for 2 s</legend>
      <span class="label" aria-hidden="true">
        {phase === 'running' ? 'Break' : 'While it runs, break'} all lanes for 2 s:
      </span>
      {choices.faults.map(({ name, title, happens }) => (
        <button
          type="button"
          class="slim"
          key={name}
          title={happens}
          disabled={!mayStrike}
          onClick={() => void send('strike', { fault: name })}
        >
          {title}
        </button>
      ))}
    </fieldset>
  );
}

function App() {
  const now = view.value;
  if (now === null) return <main class="wide">{problem.value ?? 'Connecting …'}</main>;
  const { options: raced, lanes } = now;
  const isIdle = lanes.length === 0;
  const shown = isIdle ? options.value.strategies.map(waiting) : lanes;
  const oversold = Math.max(0, ...shown.map(({ accepted }) => accepted - raced.units));
  const peak = Math.max(raced.rate, ...shown.flatMap(({ bins }) => bins.map((n) => (n * 1_000) / BIN_MS)));
  const ends = shown.flatMap(({ bins, outages }) => [
    bins.length * BIN_MS,
    ...outages.map(({ recoveredMs }, n) => now.strikes[n]!.struckMs + (recoveredMs ?? 0)),
  ]);
  // Until now; once the race is over, until the last of what lanes show.
  const endMs = 1.2 * Math.max(5_000, now.phase === 'running' ? now.elapsedMs : 0, ...ends);
  return (
    <main class="wide" data-phase={now.phase}>
      <header class="row apart">
        <div>
          <p class="label">Stampede: the race</p>
          <h1 aria-live="polite">{headline(now)}</h1>
        </div>
        <Pill tone={isBusy(now) ? 'warn' : now.phase === 'done' ? 'good' : 'plain'}>{now.phase}</Pill>
      </header>
      <div class="row apart desk">
        <Controls now={now} />
        <Faults now={now} />
      </div>
      <Live>
        {(problem.value ?? now.problem) !== null && (
          <Notice tone="bad" title={problem.value ?? now.problem ?? ''} />
        )}
      </Live>
      <ul class="legend small soft" aria-label="Legend">
        <li class="accepted">units sold a second</li>
        <li class="over">sold beyond the stock</li>
        <li class="fault">the fault lasts</li>
        <li class="recovered">recovered, since the fault began</li>
        <li class="sold">sold out</li>
      </ul>
      <div class="lanes">
        {shown.map((lane) => (
          <LaneRow key={lane.strategy} lane={lane} race={now} scale={{ oversold, peak, endMs }} />
        ))}
      </div>
      <p class="small soft">
        Every lane has the same customers in the same order, and stores 1 ms away. All share this machine: the
        race shows correctness and recovery, not speed, which <code>npm run bench</code> measures.
      </p>
    </main>
  );
}

const waiting = (name: string): RaceView['lanes'][number] => ({
  ...{ strategy: name, summary: choices.strategies.find((one) => one.name === name)?.summary ?? '' },
  ...{
    isSafe: true,
    isReady: false,
    accepted: 0,
    allSoldMs: null,
    soldOut: 0,
    busy: 0,
    unknown: 0,
    unsent: 0,
  },
  ...{ bins: [], outages: [], verdict: null },
});

render(<App />, document.body);
