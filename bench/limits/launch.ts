/**
 * Starts the service as bench/service.ts does, with variables that one passes on to nobody, and tells its process: a few
 * lines of JavaScript set the variables, say the number of the process, and then are the service.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { type Service, serviceEntry, startService } from '../service.ts';
import { type Layout, pin } from './pin.ts';

export interface Launch {
  readonly strategy: string;
  readonly confirm: 'durable' | 'accepted';
  readonly databaseUrl: string;
  readonly redisUrl: string;
}

export interface LaunchedService extends Service {
  readonly pid: number;
}

/** No order of a run expires in it, in seconds. */
const paymentWindowS = 86_400;

/** @param place where it runs, and a folder for what must be written down on the way */
export async function launchService(
  { strategy, confirm, databaseUrl, redisUrl }: Launch,
  place: { readonly layout: Layout; readonly folder: string; readonly signal: AbortSignal },
): Promise<LaunchedService> {
  const folder = await mkdtemp(join(place.folder, 'launch-'));
  const entry = join(folder, 'launch.mjs');
  const env = { CONFIRM: confirm, PAYMENT_WINDOW_S: String(paymentWindowS) };
  await writeFile(
    entry,
    `Object.assign(process.env, ${JSON.stringify(env)});
console.log(JSON.stringify({ launched: process.pid }));
await import(${JSON.stringify(pathToFileURL(serviceEntry).href)});
`,
  );
  const settings = { strategy, lock: null, databaseUrl, redisUrl };
  const service = await startService(settings, { entry, signal: place.signal });
  const dispose = async (): Promise<void> => {
    await service[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  };
  try {
    const pid = launchedPid(service.tail());
    await pin(pid, place.layout.server);
    return { ...service, pid, [Symbol.asyncDispose]: dispose };
  } catch (error) {
    await dispose();
    throw error;
  }
}

function launchedPid(lines: readonly string[]): number {
  for (const line of lines) {
    const pid = /^\{"launched":(\d+)\}$/.exec(line)?.[1];
    if (pid !== undefined) return Number(pid);
  }
  throw new Error(`the service did not tell its process; it logged:\n${lines.join('\n')}`);
}
