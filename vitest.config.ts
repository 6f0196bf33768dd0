import { defineConfig } from 'vitest/config';
import { valkeyFolder } from './lab/servers/valkey.ts';
import { Order } from './test/support/order.ts';
import { Reporter } from './test/support/reporter.ts';
import { FULL_ONLY, IN_BOTH, NIGHTLY, ON_VALKEY, QUICK_ONLY, SIZES, type Size, TIMED } from './test/tiers.ts';

/** Vitest makes URLs of paths without encoding these characters, and then finds no test file and no module. */
const misread = /[#?%]/.exec(import.meta.dirname)?.[0];
if (misread !== undefined) {
  console.error(
    `The tests do not run in ${import.meta.dirname}: Vitest misreads "${misread}" in a path. Move the project to a folder without # ? and %. (npm start works here.)`,
  );
  process.exit(1);
}

const size = (process.env.TEST_SIZE ?? 'full') as Size;
if (!SIZES.includes(size)) {
  console.error(`TEST_SIZE=${size}: use ${SIZES.join(', ')}.`);
  process.exit(1);
}

/** @param groupOrder the projects run one after the other, in this order */
const shared = (groupOrder: number) => ({
  // They end a test that hangs; a slow machine must not reach them.
  testTimeout: 180_000,
  hookTimeout: 180_000,
  expect: { poll: { timeout: 90_000 } },
  // For two cores: of a file's time most is spent waiting for stores, leases and starts of services.
  maxWorkers: 4,
  isolate: false,
  sequence: { groupOrder },
});

export default defineConfig({
  test: {
    globalSetup: ['test/support/global-setup.ts'],
    reporters: [new Reporter()],
    sequence: { sequencer: Order },
    projects: [
      {
        test: {
          ...shared(1),
          name: 'quick',
          include: ['test/**/*.test.ts'],
          exclude: [...FULL_ONLY, ...TIMED, ...NIGHTLY],
          provide: { tier: 'quick', size },
        },
      },
      {
        test: {
          ...shared(2),
          name: 'full',
          include: [...FULL_ONLY, ...IN_BOTH, ...(size === 'nightly' ? NIGHTLY : [])],
          exclude: QUICK_ONLY,
          provide: { tier: 'full', size },
        },
      },
      {
        test: {
          ...shared(3),
          name: 'timed',
          include: TIMED,
          // Alone: see test/tiers.ts.
          maxWorkers: 1,
          provide: { tier: 'full', size },
        },
      },
      {
        test: {
          // Beside the full tier.
          ...shared(2),
          name: 'valkey',
          include: ON_VALKEY,
          globalSetup: ['test/support/valkey-setup.ts'],
          env: { PATH: `${valkeyFolder}:${process.env.PATH}` },
          provide: { tier: 'quick', size },
        },
      },
    ],
    coverage: {
      provider: 'v8',
      include: ['src/**/*.ts'],
      exclude: ['src/generated/**'],
      reporter: ['text-summary', 'json-summary', 'lcovonly'],
      reportOnFailure: true,
    },
  },
});
