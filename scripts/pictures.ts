/** Makes the pictures of the shop, the console and the committed race in the documents: npm run pictures. */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { flag, optionLines, readOptions } from '../bench/kit/options.ts';
import { takePictures } from '../bench/kit/picture.ts';
import type { Race } from '../bench/race/race.ts';
import { pictureRace } from '../bench/race/record.ts';
import { openServer } from '../bench/race/server.ts';
import { openStores } from '../lab/servers/stores.ts';
import { noShedding, startService } from '../lab/service.ts';
import { onStopSignals } from '../src/config/stop-signals.ts';

const RACE = fileURLToPath(new URL('../bench/results/canonical/', import.meta.url));
const FOLDER = fileURLToPath(new URL('../docs/pictures/', import.meta.url));
const viewport = { width: 1010, height: 640 };
/** Wide enough for the open sale beside the table. */
const BESIDE = { width: 1280, height: 800 };
/** How long customers come before the picture of the console, and how many in 100 ms. */
const [LOAD_MS, AT_ONCE] = [60_000, 40];

const specs = { help: flag('show this') };
const mistakes: string[] = [];
const { help } = readOptions(specs, process.argv.slice(2), mistakes).values;
if (help)
  process.stdout.write(
    `Makes the pictures in docs/pictures, and those of the race in bench/results/canonical.\n\n${optionLines(specs, {})}\n`,
  );
if (mistakes.length > 0) process.stderr.write(`${mistakes.join('\n')}\n`);
if (mistakes.length > 0 || help) process.exit(mistakes.length > 0 ? 2 : 0);

const interrupt = new AbortController();

/** The page of a race shows the figures that are committed. */
async function pictureCommittedRace(): Promise<void> {
  const view = JSON.parse(readFileSync(`${RACE}race.json`, 'utf8'));
  await using server = await openServer({ view } as Race, 0);
  await pictureRace(server.url, RACE);
}

/** @throws when it is interrupted */
async function main({ signal }: AbortController): Promise<void> {
  await pictureCommittedRace();
  const given = { databaseUrl: undefined, redisUrl: undefined, keep: false, mayDelete: false };
  await using stores = await openStores({ ...given, say: (line) => process.stderr.write(`${line}\n`) });
  await using empty = await stores.fresh('pictures');
  const settings = { strategy: 'lua', lock: null, databaseUrl: empty.databaseUrl, redisUrl: empty.redisUrl };
  // With the usual time to pay.
  const env = { ADMISSION_MS: noShedding.ADMISSION_MS, CURRENCY: 'EUR' };
  await using service = await startService({ ...settings, env }, { signal, nodeOptions: [] });

  async function post(path: string, body: object): Promise<void> {
    const headers = { 'content-type': 'application/json' };
    await fetch(service.url + path, { method: 'POST', headers, body: JSON.stringify(body) });
  }
  const inHours = (hours: number) => new Date(Date.now() + hours * 3_600_000).toISOString();

  await post('/sales', { name: 'Winter jacket, last season', stock: 200, priceCents: 11_900 });
  await post('/sales', { name: 'Concert, front row', stock: 80, priceCents: 18_500, startsAt: inHours(26) });
  const description =
    'Our lightest trail shoe of the season: 212 g, and a sole that grips wet rock.\n\nShips within two working days.';
  const runners = { name: 'Trail runners', description, stock: 100_000, priceCents: 8_900 };
  await post('/sales', { ...runners, endsAt: inHours(2) });

  let customer = 0;
  const crowd = async (saleId: number, count: number) => {
    const attempts = Array.from({ length: count }, () =>
      post(`/sales/${saleId}/orders`, { userId: `customer-${customer++}` }),
    );
    await Promise.all(attempts);
  };
  await crowd(1, 240);
  let isOver = false;
  const coming = async () => {
    for (let n = 0; !isOver; n++) {
      await Promise.all([crowd(3, AT_ONCE + ((n * 7) % 20)), sleep(100, undefined, { signal })]);
    }
  };
  const pictures = async () => {
    await takePictures({
      ...{ url: `${service.url}/shop/3`, path: `${FOLDER}shop.png`, viewport, fullPage: true },
      async prepare(page) {
        await page.fill('input[name=customer]', 'ann');
        await page.click('button.primary');
        await page.waitForSelector('text=Your order is reserved');
      },
    });
    await takePictures({
      ...{ url: `${service.url}/console`, path: `${FOLDER}console.png`, viewport: BESIDE, fullPage: false },
      async prepare(page) {
        await page.getByRole('link', { name: 'Trail runners' }).click();
        await sleep(LOAD_MS, undefined, { signal });
      },
    });
    isOver = true;
  };
  await Promise.all([coming(), pictures()]);
}

onStopSignals(process, {
  first: () => interrupt.abort(new Error('interrupted')),
  later: () => process.exit(130),
});
try {
  await main(interrupt);
} catch (error) {
  if (!interrupt.signal.aborted) throw error;
  process.exitCode = 130;
}
