/** What customers do in a seeded run. Each workload resolves when the last customer has gone. */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Random, seededRandom } from '../../lab/kit/random.ts';
import { post } from './client.ts';
import type { TestSale } from './world.ts';

export type Workload = (sale: TestSale, random: Random) => Promise<void>;

/** Few customers, with pauses: a request that takes effect late finds a free unit only in a quiet moment. */
const TRADERS = 5;
const PAUSE_MS = 800;
export const TRADING_MS = 11_000;

/** Customers buy, repeat at both services, cancel and pay; an operator restocks. None waits for a final answer. */
export const trading: Workload = async (sale, random) => {
  const untilMs = performance.now() + TRADING_MS;
  const urls = await Promise.all(sale.world.services.map((service) => service.url));
  const either = () => urls[random() < 0.5 ? 0 : 1]!;
  const goesOn = () => performance.now() < untilMs;
  async function trader(user: string, own: Random): Promise<void> {
    let orderId: string | null = null;
    const buy = async (url: string) => {
      const answer = await sale.request('purchase', user, { url });
      return answer !== null && answer.status < 300 ? String(answer.body.orderId) : null;
    };
    while (goesOn()) {
      const choice = own();
      if (orderId !== null && choice < 0.5) {
        await sale.request('cancel', user, { orderId, url: either() });
        orderId = null;
      } else if (orderId !== null && choice < 0.53) {
        await sale.request('pay', user, { orderId, url: either() });
      } else if (choice < 0.75) {
        const [first, second] = own() < 0.5 ? urls : urls.toReversed();
        const delayMs = own() < 0.5 ? 0 : own() * 1_500;
        const both = await Promise.all([buy(first!), sleep(delayMs).then(() => buy(second!))]);
        orderId = both.find((id) => id !== null) ?? orderId;
      } else orderId = (await buy(either())) ?? orderId;
      await sleep(30 + own() * PAUSE_MS);
    }
  }
  async function operator(): Promise<void> {
    while (goesOn()) {
      await sleep(2_000 + random() * 4_000);
      const units = [1, 1, 2, -1][Math.floor(random() * 4)]!;
      const restocking = post(`${either()}/sales/${sale.id}/restock`, { units });
      await sale.ledger.record({ op: 'restock', userId: 'operator', units }, restocking);
    }
  }
  const seeds = Array.from({ length: TRADERS }, () => Math.floor(random() * 2 ** 31));
  await Promise.all([...seeds.map((seed, i) => trader(`c${i}`, seededRandom(seed))), operator()]);
};
