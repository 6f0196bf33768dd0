import { defineConfig } from 'prisma/config';

// The command line needs only the paths. The service gives the client its own connections, and migrates by itself
// (src/store/postgres/pool.ts, src/store/postgres/migrate.ts): no URL is read here unless a person asks.
const url = process.env.MIGRATION_DATABASE_URL || process.env.DATABASE_URL;

export default defineConfig({
  schema: 'prisma/schema.prisma',
  migrations: { path: 'prisma/migrations' },
  ...(url ? { datasource: { url } } : {}),
});
