/**
 * Names of variables that nobody reads. A misspelt one would leave its variable at the default without a word. The environment holds
 * many names of other programs, so only those count there that are almost one of ours; the file `.env` is Stampede's own.
 */
import leven from 'leven';

/** Read by docker-compose.yml, which shares `.env`, and by nothing else. */
export const COMPOSE_VARIABLES = [
  'POSTGRES_PASSWORD',
  'POSTGRES_SERVICE_PASSWORD',
  'REDIS_PASSWORD',
  'REDIS_SERVICE_PASSWORD',
] as const;

/** Variables of Docker Compose itself. */
const OF_COMPOSE = /^(COMPOSE|DOCKER)_/;
/** A shorter name is too close to other programs' names: PATH and AUTH differ in two letters. */
const SHORTEST_IN_ENVIRONMENT = 6;

/** The known name that this one was meant to be, ignoring case; null when none is that close. */
function meantBy(name: string, known: readonly string[]): string | null {
  const distances = known.map((one) => ({ one, distance: leven(name.toUpperCase(), one) }));
  const near = distances.filter(
    ({ one, distance }) => distance <= (one.length < SHORTEST_IN_ENVIRONMENT ? 1 : 2),
  );
  return near.sort((a, b) => a.distance - b.distance)[0]?.one ?? null;
}

/**
 * @param env with what `.env` added to it @param fileNames the names in `.env`
 * @returns a mistake for each misspelt name
 */
export function misspeltNames(
  env: Readonly<Record<string, string | undefined>>,
  fileNames: readonly string[],
  known: readonly string[],
): string[] {
  const inEnvironment = Object.keys(env).filter((name) => !known.includes(name) && !fileNames.includes(name));
  const foreign = inEnvironment.flatMap((name) => {
    const near = meantBy(name, known);
    // Whoever set the right name as well knows both.
    if (near === null || near.length < SHORTEST_IN_ENVIRONMENT || env[near] !== undefined) return [];
    return `${name} is unknown; did you mean ${near}? If it is another program's, set ${near} as well, even to nothing`;
  });
  const all = [...known, ...COMPOSE_VARIABLES];
  const own = unknownNames(fileNames, known).flatMap((name) => {
    const near = meantBy(name, all);
    return near === null ? [] : `${name} in .env is unknown; did you mean ${near}?`;
  });
  return [...foreign, ...own];
}

/** Names in `.env` that neither the service nor Compose reads. */
export const unknownNames = (fileNames: readonly string[], known: readonly string[]): string[] =>
  fileNames.filter(
    (name) =>
      !known.includes(name) &&
      !(COMPOSE_VARIABLES as readonly string[]).includes(name) &&
      !OF_COMPOSE.test(name),
  );
