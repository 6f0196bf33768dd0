/** Prisma's client on a pool. It costs a start much time, and is therefore loaded only where it is used: `PostgresStore.prisma`. */
import { PrismaPg } from '@prisma/adapter-pg';
import type pg from 'pg';
import { PrismaClient } from '../../generated/prisma/client.ts';

/** @param schema Prisma writes it before the name of each table; null: it writes `public` */
export function openPrisma(pool: pg.Pool, schema: string | null): PrismaClient {
  return new PrismaClient({
    adapter: new PrismaPg(pool, { disposeExternalPool: false, ...(schema !== null && { schema }) }),
  });
}
