/** Certificate authorities and server certificates, made with the openssl program. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
/** OpenSSL 3.4 rejects negative days, but accepts dates; earlier versions do the opposite. */
const EXPIRED = [
  ['-days', '-1'],
  ['-not_before', '20200101000000Z', '-not_after', '20200102000000Z'],
];

/** Why these tests are skipped; null: there is an openssl program. */
export const whyNoOpenssl = (): Promise<string | null> =>
  run('openssl', ['version']).then(
    () => null,
    () => 'no openssl program on PATH',
  );

export interface Authority {
  /** The path of its certificate. */
  readonly certificate: string;
  /** Issues a certificate for a server; all servers share a key. @returns its path */
  issue(name: string, server: { readonly host: string; readonly expired?: boolean }): Promise<string>;
}

/** @param folder for its files */
export async function createAuthority(folder: string, name: string): Promise<Authority> {
  const file = (extension: string) => path.join(folder, `${name}.${extension}`);
  const out = ['-keyout', file('key'), '-out', file('pem'), '-days', '2', '-subj', `/CN=${name}`];
  await run('openssl', ['req', '-x509', ...KEY, ...out]);
  return {
    certificate: file('pem'),
    async issue(issued, { host, expired = false }) {
      const of = (extension: string) => path.join(folder, `${issued}.${extension}`);
      await writeFile(of('ext'), `subjectAltName=DNS:${host}\n`);
      const subject = ['-subj', `/CN=${host}`];
      await run('openssl', [
        'req',
        '-new',
        '-key',
        path.join(folder, 'server.key'),
        '-out',
        of('csr'),
        ...subject,
      ]);
      const signed = ['-CA', file('pem'), '-CAkey', file('key'), '-CAcreateserial', '-extfile', of('ext')];
      const sign = (dates: readonly string[]) =>
        run('openssl', ['x509', '-req', '-in', of('csr'), ...signed, '-out', of('pem'), ...dates]);
      if (expired) await sign(EXPIRED[0]!).catch(() => sign(EXPIRED[1]!));
      else await sign(['-days', '2']);
      return of('pem');
    },
  };
}

/** Makes the key of all servers. @returns its path */
export async function createServerKey(folder: string): Promise<string> {
  const key = path.join(folder, 'server.key');
  await run('openssl', ['ecparam', '-name', 'prime256v1', '-genkey', '-noout', '-out', key]);
  return key;
}
