/** A process that calls the script of an attempt, or that of many, as often as Redis answers. */
import { openRedis } from '../../../src/store/redis/connection.ts';
import { keysOf } from '../sale-keys.ts';
import type { CallsOrder } from '../script.ts';

process.on('disconnect', () => process.exit(0));
process.once('message', (order: CallsOrder) => void callOn(order));

async function callOn({ redisUrl, saleId, epoch, batch, inFlight }: CallsOrder): Promise<void> {
  const { scripts } = await openRedis(redisUrl, () => {}); // the call that is under way fails as well
  const keys = keysOf(saleId);
  let attempts = 0;
  // As long as the names of the load's customers, and as UUIDs.
  const attempt = () => {
    attempts++;
    return {
      userId: `b${1_000_000_000 + attempts}`,
      orderId: `00000000-0000-7000-8000-${String(attempts).padStart(12, '0')}`,
    };
  };
  const one = async (): Promise<void> => {
    const { userId, orderId } = attempt();
    await scripts.reserve(keys, userId, orderId, epoch);
  };
  const many = async (): Promise<void> => {
    const members = Array.from({ length: batch }, attempt);
    await scripts.reserveMany([{ keys, members }], epoch);
  };
  const call = batch === 1 ? one : many;
  const lane = async (): Promise<never> => {
    for (;;) await call();
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
}
