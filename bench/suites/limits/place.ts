/** The place of the platform suites: processors, generator and stores. */

import { remoteService } from '../../../lab/remote.ts';
import type { BenchStores } from '../../../lab/servers/stores.ts';
import { type Environment, needBuild } from '../../kit/environment.ts';
import { type Layout, pin, processorsHere, sharedLayout, splitLayout } from '../../kit/pin.ts';
import { chooseGenerator, type GeneratorName } from '../../load/generator.ts';
import type { Generator } from '../../load/rate.ts';

/** `auto`: split if the system can. */
export const pins = ['auto', 'split', 'none'] as const;

interface PlaceOptions {
  readonly pin: (typeof pins)[number];
  readonly generator: GeneratorName;
}

export interface Place {
  readonly layout: Layout;
  readonly generator: Generator;
  readonly stores: BenchStores;
  readonly signal: AbortSignal;
  readonly scratch: string;
  /** The folder of the run's results. */
  readonly folder: string;
  /** The load generator, and how it is pinned. */
  readonly text: string;
}

/** @throws if the options or the machine do not fit */
export async function openPlace(options: PlaceOptions, environment: Environment): Promise<Place> {
  const { scratch, signal, folder } = environment;
  if (remoteService() !== null) throw new Error('BENCH_SERVICE: this suite compares servers on this machine');
  await needBuild();
  const here = processorsHere();
  const split = options.pin === 'none' ? 'not wanted' : splitLayout(here);
  if (options.pin === 'split' && typeof split === 'string') throw new Error(`--pin split: ${split}`);
  const layout = typeof split === 'string' ? sharedLayout(here) : split;
  const generator = chooseGenerator(options.generator, layout, scratch);
  // Child processes inherit this; whoever starts a server or generator pins it elsewhere.
  await pin(process.pid, layout.stores);
  const stores = await environment.stores();
  const given = stores.postgresPid === null ? '; the given stores are not pinned' : '';
  return {
    layout,
    generator,
    stores,
    signal,
    scratch,
    folder,
    text: `${generator.name}; ${layout.text}${given}`,
  };
}
