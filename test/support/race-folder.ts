/** A folder of a test file's own for its races and their servers. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { afterAll, beforeAll, expect } from 'vitest';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';

export interface RaceFolder {
  readonly path: string;
  /** Expects no race's folder in it, and no process that uses it. */
  nothingIsLeft(): void;
}

/** Opened and deleted with the test file; TMPDIR names it meanwhile. */
export function raceFolder(): RaceFolder {
  let folder = '';
  const { TMPDIR } = process.env;
  beforeAll(async () => {
    folder = await temporaryFolder('stampede-test-race-');
    process.env.TMPDIR = folder;
  });
  afterAll(async () => {
    process.env.TMPDIR = TMPDIR;
    await rm(folder, { recursive: true, force: true });
  });
  return {
    get path() {
      return folder;
    },
    nothingIsLeft() {
      expect(readdirSync(folder).filter((name) => name.startsWith('stampede-race-'))).toEqual([]);
      expect(processesOf(folder)).toEqual([]);
    },
  };
}

/** Command lines of processes that use a folder. */
function processesOf(path: string): string[] {
  const ids = existsSync('/proc') ? readdirSync('/proc').filter((name) => /^\d+$/.test(name)) : [];
  return ids.flatMap((id) => {
    try {
      const line = readFileSync(`/proc/${id}/cmdline`, 'utf8').replaceAll('\0', ' ');
      return line.includes(path) ? [line] : [];
    } catch {
      return []; // the process has ended
    }
  });
}
