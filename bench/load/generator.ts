/** Chooses the generator of closed loops, the same for every cell of a run. */
import { spawnSync } from 'node:child_process';
import { findProgram } from '../../lab/kit/processes.ts';
import { oneOf, usually } from '../kit/options.ts';
import type { Layout } from '../kit/pin.ts';
import { autocannonGenerator } from './autocannon.ts';
import type { Generator } from './rate.ts';
import { wrkGenerator } from './wrk.ts';

const names = ['auto', 'wrk', 'autocannon'] as const;
type GeneratorName = (typeof names)[number];

/** The option `--generator`. */
export const generatorOption = (help: string) =>
  usually(oneOf(names, `${help}; auto: wrk, if it is installed`), 'auto');

/** @throws when the wanted one is not installed */
export function chooseGenerator(wanted: GeneratorName, layout: Layout, folder: string): Generator {
  const program = findProgram('wrk');
  if (wanted === 'wrk' && program === null) throw new Error('--generator wrk: wrk is not installed');
  if (wanted === 'autocannon' || program === null) return autocannonGenerator(layout, folder);
  const version =
    /^wrk \S+/m.exec(spawnSync(program, ['-v'], { encoding: 'utf8' }).stdout ?? '')?.[0] ?? 'wrk';
  return wrkGenerator({ program, name: `${version}, 1 thread`, layout, folder });
}
