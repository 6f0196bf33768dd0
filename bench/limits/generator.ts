/** What makes the load over HTTP; the same one for every cell of a run. */
import { spawnSync } from 'node:child_process';
import { findProgram } from '../processes.ts';
import { autocannonGenerator } from './autocannon.ts';
import type { Generator } from './load.ts';
import type { Layout } from './pin.ts';
import { wrkGenerator } from './wrk.ts';

/** @returns the generator, or what is wrong with the wish */
export function chooseGenerator(
  wanted: 'auto' | 'wrk' | 'autocannon',
  layout: Layout,
  folder: string,
): Generator | string {
  const wrk = findProgram('wrk');
  if (wanted === 'wrk' && wrk === null)
    return '--generator wrk: wrk is not installed; leave it out for autocannon';
  if (wanted === 'autocannon' || wrk === null) return autocannonGenerator(layout);
  const told = spawnSync(wrk, ['-v'], { encoding: 'utf8' }).stdout ?? '';
  const version = /^wrk \S+/m.exec(told)?.[0] ?? 'wrk';
  return wrkGenerator({ program: wrk, name: `${version}, 1 thread`, layout, folder });
}
