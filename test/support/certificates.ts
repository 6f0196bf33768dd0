/** A certificate authority and certificates of servers, made with the openssl program. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

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
  issue(host: string): Promise<string>;
}

/** @param folder for its files, with the key of the servers */
export async function createAuthority(folder: string): Promise<Authority> {
  const file = (name: string) => path.join(folder, name);
  const out = ['-keyout', file('ca.key'), '-out', file('ca.pem'), '-days', '2', '-subj', '/CN=ca'];
  await run('openssl', ['req', '-x509', ...KEY, ...out]);
  return {
    certificate: file('ca.pem'),
    async issue(host) {
      await writeFile(file(`${host}.ext`), `subjectAltName=DNS:${host}\n`);
      const subject = ['-key', file('server.key'), '-subj', `/CN=${host}`, '-out', file(`${host}.csr`)];
      await run('openssl', ['req', '-new', ...subject]);
      const by = ['-CA', file('ca.pem'), '-CAkey', file('ca.key'), '-CAcreateserial', '-days', '2'];
      const signed = [
        '-in',
        file(`${host}.csr`),
        '-extfile',
        file(`${host}.ext`),
        '-out',
        file(`${host}.pem`),
      ];
      await run('openssl', ['x509', '-req', ...signed, ...by]);
      return file(`${host}.pem`);
    },
  };
}

/** Makes the key of all servers. @returns its path */
export async function createServerKey(folder: string): Promise<string> {
  const key = path.join(folder, 'server.key');
  await run('openssl', ['ecparam', '-name', 'prime256v1', '-genkey', '-noout', '-out', key]);
  return key;
}
