import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // Every file starts servers and service processes of its own; the machines this runs on have two cores.
    maxWorkers: 2,
    reporters: ['default'],
  },
});
