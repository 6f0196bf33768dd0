/** A process that migrates the database it is given, for a test that kills it. */
import { migrate } from '../../src/store/postgres/migrate.ts';

await migrate(process.argv[2]!);
