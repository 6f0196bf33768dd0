/**
 * A service on another machine: `BENCH_SERVICE=[user@]host:/folder` names a built checkout there, which ssh starts for each
 * trial. The service ends when its standard input does, so it ends with the connection as well.
 */
export interface RemoteService {
  /** What ssh connects to. */
  readonly target: string;
  /** Where clients reach it. */
  readonly host: string;
  readonly folder: string;
}

/** @returns null: the service runs here. @throws when the value is malformed or a variable is missing */
export function remoteService(env: NodeJS.ProcessEnv = process.env): RemoteService | null {
  const { BENCH_SERVICE: text = '', DATABASE_URL, REDIS_URL, ADMIN_TOKEN } = env;
  if (text === '') return null;
  const [, target = '', host = '', folder = ''] = /^((?:[^@:\s]+@)?([^@:\s]+)):(\/.*)$/.exec(text) ?? [];
  if (folder === '') throw new Error('BENCH_SERVICE must be [user@]host:/folder of a built checkout');
  if (!DATABASE_URL || !REDIS_URL || !ADMIN_TOKEN) {
    throw new Error(
      'BENCH_SERVICE also needs DATABASE_URL and REDIS_URL, as both machines reach them, and ADMIN_TOKEN',
    );
  }
  return { target, host, folder };
}

const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** The command that starts `node …` in the remote folder. */
export function sshCommand(
  { target, folder }: RemoteService,
  node: readonly string[],
  env: Readonly<Record<string, string>>,
): string[] {
  const variables = Object.entries(env).map(([name, value]) => `${name}=${quoted(value)}`);
  const program = ['env', ...variables, 'node', ...node.map(quoted)].join(' ');
  // `exec` keeps the process id, which the reader of the standard input signals at its end.
  const reader = '{ cat <&3; kill -TERM $$; } >/dev/null 2>&1 &';
  const script = `cd ${quoted(folder)} || exit 1; exec 3<&0; ${reader} exec ${program} </dev/null 3<&-`;
  return ['ssh', '-o', 'BatchMode=yes', target, `sh -c ${quoted(script)}`];
}
