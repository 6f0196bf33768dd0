/** The place of the platform suites: processors, generator and stores. */

import { remoteService } from '../../../lab/remote.ts';
import { type Environment, needBuild } from '../../kit/environment.ts';
import { pin, processorsHere, sharedLayout, splitLayout } from '../../kit/pin.ts';
import { chooseGenerator } from '../../load/generator.ts';
import type { LimitOptions } from './options.ts';

export type Place = Readonly<Awaited<ReturnType<typeof openPlace>>>;

/** @throws if the options or the machine do not fit */
export async function openPlace(options: Pick<LimitOptions, 'pin' | 'generator'>, environment: Environment) {
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
  /** The load generator, and how it is pinned. */
  const text = `${generator.name}; ${layout.text}${given}`;
  return { layout, generator, stores, signal, scratch, folder, text };
}
