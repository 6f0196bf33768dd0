import { defineConfig } from 'vitest/config';
import { FULL_ONLY, IN_BOTH, QUICK_ONLY } from './test/tiers.ts';

/** They end a test that hangs; a slow machine must not reach them. */
const timeouts = { testTimeout: 180_000, hookTimeout: 180_000 };

export default defineConfig({
  test: {
    globalSetup: ['test/support/global-setup.ts'],
    // Every file starts services and some start stores; the machines this runs on have two cores.
    maxWorkers: 2,
    reporters: ['default'],
    projects: [
      {
        test: {
          ...timeouts,
          name: 'quick',
          include: ['test/**/*.test.ts'],
          exclude: [...FULL_ONLY],
          provide: { tier: 'quick' },
        },
      },
      {
        test: {
          ...timeouts,
          name: 'full',
          include: [...FULL_ONLY, ...IN_BOTH],
          exclude: QUICK_ONLY,
          provide: { tier: 'full' },
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
