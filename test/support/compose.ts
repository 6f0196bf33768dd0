/** docker-compose.yml as Compose reads it, with the secrets of a new `.env`. */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseEnv as parseEnvFile } from 'node:util';
import { parse } from 'yaml';
import { parseEnv } from '../../src/config/env.ts';
import { choices } from '../../src/service/core.ts';

const root = new URL('../../', import.meta.url);
const text = (file: string) => readFileSync(new URL(file, root), 'utf8');

export interface Service {
  readonly image?: string;
  readonly profiles?: readonly string[];
  readonly hostname?: string;
  readonly build?: string;
  readonly command?: readonly string[];
  readonly read_only?: boolean;
  readonly cap_drop?: readonly string[];
  readonly security_opt?: readonly string[];
  readonly tmpfs?: readonly string[];
  readonly configs?: readonly { readonly source: string; readonly target: string }[];
  readonly environment: Record<string, string>;
  readonly ports?: readonly string[];
  readonly volumes?: readonly string[];
  readonly healthcheck?: { readonly test: readonly string[] };
  readonly restart?: string;
  readonly depends_on?: Record<string, { condition: string; required?: boolean }>;
}
export interface Compose {
  readonly services: Record<string, Service>;
  readonly configs: Record<string, { readonly content?: string; readonly file?: string }>;
  readonly volumes: Record<string, null>;
}
/**
 * Replaces `${NAME}`, `${NAME:-default}` and `${NAME:?message}`, but not `$$`.
 * @throws Compose's error if a required variable is missing
 */
const interpolated = (text: string, env: Readonly<Record<string, string | undefined>>) =>
  text.replace(/\$\$|\$\{(\w+)(?::([-?])([^}]*))?\}/g, (match, name: string, kind: string, rest: string) => {
    if (match === '$$') return match;
    if (kind === '?' && !env[name]) throw new Error(`required variable ${name} is missing a value: ${rest}`);
    return env[name] || (kind === '-' ? rest : '');
  });

/** @throws what Compose reports if the environment lacks a variable */
export function readCompose(env: Readonly<Record<string, string | undefined>>): Compose {
  // Compose merges `<<`, which YAML 1.2 does not. The limit of aliases is for untrusted files.
  const raw = parse(text('docker-compose.yml'), { merge: true, maxAliasCount: -1 });
  return JSON.parse(JSON.stringify(raw), (_, value) =>
    typeof value === 'string' ? interpolated(value, env) : value,
  );
}

/** Runs scripts/secrets.sh in a folder with this `.env`, or none. @returns the variables of its `.env` */
export function writeSecrets(existing?: string): Record<string, string> {
  const folder = mkdtempSync(path.join(tmpdir(), 'stampede-test-secrets-'));
  try {
    mkdirSync(path.join(folder, 'scripts'));
    cpSync(fileURLToPath(new URL('scripts/secrets.sh', root)), path.join(folder, 'scripts/secrets.sh'));
    const file = path.join(folder, '.env');
    if (existing !== undefined) writeFileSync(file, existing);
    execFileSync('sh', [path.join(folder, 'scripts/secrets.sh')], { stdio: 'ignore' });
    if ((statSync(file).mode & 0o077) !== 0) throw new Error('others can read .env');
    return parseEnvFile(readFileSync(file, 'utf8')) as Record<string, string>;
  } finally {
    rmSync(folder, { recursive: true });
  }
}
export const secrets = writeSecrets();
export const compose: Compose = readCompose(secrets);
/** The services that run Stampede. */
export const stampedes = Object.entries(compose.services)
  .filter(([, service]) => 'build' in service)
  .map(([name]) => name);

const [, imageHost] = / HOST=(\S+)/.exec(text('Dockerfile'))!;
/** The configuration of a service that runs Stampede, with the defaults of its variables. */
export const configOf = (name: string) =>
  parseEnv({ HOST: imageHost, ...compose.services[name]!.environment }, choices);
