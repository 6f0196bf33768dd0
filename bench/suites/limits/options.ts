/** The options of the suites that measure the service against its platform. */
import { strategies } from '../../../src/strategies/registry.ts';
import { flag, named, oneOf, optionsOf, sized, usually } from '../../kit/options.ts';
import { generatorOption } from '../../load/generator.ts';
import type { Kind } from './cells.ts';

/** `auto`: split if the system can. */
const pins = ['auto', 'split', 'none'] as const;
const pinned =
  'the server alone on the first processor, the load on the last, the stores on all but the first';
const namesOf = (cells: Kind['cells']) => [
  ...new Set([...cells.map(({ name }) => name), ...strategies.keys()]),
];
export const optionsFor = ({ cells, connections, seconds, pin }: Kind) =>
  optionsOf(
    {
      cells: named(namesOf(cells), 'cell', 'which cells; a ratio needs both of its cells (all)'),
      profile: flag('profile the service: with lua, unless --cells names others'),
      trace: flag('record the batches of the service, and how long each waited and took'),
      duration: usually(sized('seconds', 0.1, 3_600, 'seconds of each step'), String(seconds), '0.5'),
      warmup: usually(sized('seconds', 0, 3_600, 'seconds of the same load before'), '10', '0.5'),
      connections: sized('wholes', 1, 10_000, `the last one leads (${connections.join()})`),
      pin: usually(oneOf(pins, `split: ${pinned}`), pin),
      generator: generatorOption('what makes the load'),
    },
    ({ duration: durationMs, warmup: warmupMs, ...given }, { smoke, canonical }, mistakes) => {
      const { profile, trace } = given;
      if ((profile || trace) && canonical)
        mistakes.push('--profile and --trace slow the service: they go without --canonical');
      const all = cells.map(({ name }) => name);
      const usual = smoke ? [64] : profile ? connections.slice(-1) : connections;
      return {
        ...{ ...given, durationMs, warmupMs },
        cells: given.cells ?? (profile ? ['lua'] : smoke ? all.slice(0, 2) : all),
        connections: given.connections ?? usual,
      };
    },
  );
export type LimitOptions = ReturnType<ReturnType<typeof optionsFor>['read']>;
