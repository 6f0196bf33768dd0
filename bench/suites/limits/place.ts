/** Where the suites against the platform run: processors, generator and stores, always local. */
import { type Environment, needBuild } from '../../kit/environment.ts';
import type { Given, OptionSpecs } from '../../kit/options.ts';
import { type Layout, layoutOf, pin, processorsHere } from '../../kit/pin.ts';
import { type BenchStores, openStores } from '../../kit/stores.ts';
import { chooseGenerator, generatorNames } from '../../load/generator.ts';
import type { Generator } from '../../load/rate.ts';

export interface PlaceOptions {
  /** `auto`: split where the system can. */
  readonly pin: 'auto' | 'split' | 'none';
  readonly generator: (typeof generatorNames)[number];
}

export const placeSpecs: OptionSpecs = {
  pin: {
    kind: 'choice',
    choices: ['auto', 'split', 'none'],
    help: 'split: the server has the first processor alone, the load the last one, the stores all but the first (auto)',
  },
  generator: {
    kind: 'choice',
    choices: generatorNames,
    help: 'what makes the load (wrk where it is installed)',
  },
};

export const readPlace = (given: Given): PlaceOptions => ({
  pin: given.choice('pin', 'auto'),
  generator: given.choice('generator', 'auto'),
});

export interface Place extends AsyncDisposable {
  readonly layout: Layout;
  readonly generator: Generator;
  readonly stores: BenchStores;
  /** For the report. */
  readonly text: string;
}

/** @throws what is wrong with the options or the machine */
export async function openPlace(
  { pin: wanted, generator }: PlaceOptions,
  { scratch, say }: Environment,
): Promise<Place> {
  await needBuild();
  const here = processorsHere();
  const split = wanted === 'none' ? null : layoutOf(true, here);
  if (wanted === 'split' && typeof split === 'string') throw new Error(`--pin split: ${split}`);
  const layout = split === null || typeof split === 'string' ? layoutOf(false, here) : split;
  if (typeof layout === 'string') throw new Error(layout);
  const chosen = chooseGenerator(generator, layout, scratch);
  if (typeof chosen === 'string') throw new Error(chosen);
  // What the bench starts runs where it does itself; servers and generators are moved by their starters.
  await pin(process.pid, layout.stores);
  const stores = await openStores({
    databaseUrl: undefined,
    redisUrl: undefined,
    keep: false,
    mayDelete: false,
    say,
  });
  const text = `${chosen.name}; ${layout.text}`;
  return {
    layout,
    generator: chosen,
    stores,
    text,
    [Symbol.asyncDispose]: () => stores[Symbol.asyncDispose](),
  };
}
