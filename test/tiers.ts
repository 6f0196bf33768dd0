/**
 * The two tiers of the tests, as vitest projects. `npm test` runs `quick`; `npm run test:all` runs both. A test file belongs to
 * `quick` unless one of these lists says otherwise.
 */

/** Files that run in the full tier alone: each takes more than about 10 s, or bounds a duration. */
export const FULL_ONLY: readonly string[] = [];

/** Files with tests of both tiers; they ask test/support/tier.ts. */
export const IN_BOTH: readonly string[] = [];
