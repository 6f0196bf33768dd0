/** A stand-in for the service: starts local stores, prints their URLs, and has no signal handler at all. */
import { startLocalStores } from '../../src/local/stores.ts';

const stores = await startLocalStores({
  folder: process.argv[2] as string,
  postgres: true,
  redis: true,
  say: (line) => console.log(line),
});
console.log(JSON.stringify(stores));
setInterval(() => {}, 1_000_000);
