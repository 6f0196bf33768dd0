/** What the kit provides to a suite: stores, folders, a signal, and a log function. */
import { access } from 'node:fs/promises';
import { removeFolder, temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { type BenchStores, openStores, type StoresOptions } from '../../lab/servers/stores.ts';
import { serviceEntry } from '../../lab/service.ts';

export interface Environment {
  /** Started on first use, stopped with the run. */
  stores(): Promise<BenchStores>;
  /** The folder of this run's results, for histories. */
  readonly folder: string;
  /** For files deleted with the run. */
  readonly scratch: string;
  /** Fires when the user wants to stop: a trial is then abandoned with this signal's reason. */
  readonly signal: AbortSignal;
  /** Logs a line. */
  readonly say: (line: string) => void;
}

export async function openEnvironment(
  place: Pick<Environment, 'folder' | 'signal' | 'say'>,
  options: StoresOptions,
): Promise<Environment & AsyncDisposable> {
  const scratch = await temporaryFolder('stampede-bench-run-');
  let stores: Promise<BenchStores> | null = null;
  return {
    ...place,
    scratch,
    stores() {
      stores ??= openStores(options);
      return stores;
    },
    async [Symbol.asyncDispose]() {
      await (await stores?.catch(() => null))?.[Symbol.asyncDispose]();
      await removeFolder(scratch);
    },
  };
}

/** @throws when the service was not built */
export async function needBuild(): Promise<void> {
  await access(serviceEntry).catch((cause: unknown) => {
    throw new Error(`${serviceEntry} is missing: npm run bench builds it`, { cause });
  });
}

/** The servers of a trial cannot be started on this machine. The run leaves its cell out. */
export class MissingServersError extends Error {
  override readonly name = 'MissingServersError';
}
