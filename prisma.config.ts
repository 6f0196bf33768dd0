import { defineConfig } from 'prisma/config';

// The command line needs only the paths. The service hands its own connection to the client and to the
// schema engine (src/store/postgres/pool.ts, src/store/postgres/migrate.ts), so no URL is read here unless a person asks.
const url = process.env.MIGRATION_DATABASE_URL || process.env.DATABASE_URL;

export default defineConfig({
  schema: 'prisma/schema.prisma',
  migrations: { path: 'prisma/migrations' },
  ...(url ? { datasource: { url } } : {}),
});
