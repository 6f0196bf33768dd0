/**
 * Secrets and URLs from files, as Kubernetes, systemd and Docker provide them: DATABASE_URL_FILE names a file that contains
 * DATABASE_URL.
 */
import { readFileSync } from 'node:fs';

type Given = Readonly<Record<string, string | undefined>>;

/** Variables that are also read from the file that NAME_FILE names: every URL, and what only the service may know. */
const FROM_FILE = /_(URLS?|SECRETS?|TOKEN|ENDPOINT|HEADERS)$/;

/** @returns NAME_FILE for each name that may be in a file */
export const fileVariables = (names: readonly string[]): string[] =>
  names.filter((name) => FROM_FILE.test(name)).map((name) => `${name}_FILE`);

/** What to do about a file that cannot be read, by the code of the error. */
const ADVICE: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file: write the value to it, or correct the path',
  ENOTDIR: 'there is no such file: correct the path',
  EISDIR: 'it is a folder: name the file in it',
  EACCES: `user ${process.getuid?.() ?? ''} may not read it: change its owner or its mode`,
};

/**
 * Reads the files that an environment names.
 * @param given the variables that are not empty @param names of all variables
 * @param mistake receives one for each file that cannot be used
 * @returns the values by NAME, without one trailing newline; '' for a file that cannot be used
 */
export function valuesOfFiles(
  given: Given,
  names: readonly string[],
  mistake: (message: string) => void,
): Record<string, string> {
  const named = fileVariables(names).filter((variable) => given[variable] !== undefined);
  const values = named.map((variable) => {
    const name = variable.slice(0, -'_FILE'.length);
    const read = given[name] === undefined ? contentOf(given[variable]!) : { problem: null };
    if ('text' in read) return [name, read.text];
    mistake(
      read.problem === null
        ? `${name} and ${variable} are both set: remove one of them, or set it to nothing`
        : `${variable}=${JSON.stringify(given[variable])} cannot be used: ${read.problem}`,
    );
    return [name, ''];
  });
  return Object.fromEntries(values);
}

function contentOf(file: string): { readonly text: string } | { readonly problem: string } {
  try {
    const text = readFileSync(file, 'utf8').replace(/\r?\n$/, '');
    return text === '' ? { problem: 'it is empty: write the value to it' } : { text };
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException;
    return { problem: ADVICE[code] ?? message };
  }
}
