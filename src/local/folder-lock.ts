/**
 * Mutual exclusion over a folder, on any file system. Node has no flock.
 *
 * Each contender writes a claim, a file named after its process identity, and *then* lists all claims. Of two contenders at
 * least one lists after the other has written, so two can never both find only their own claim. Claim names are never reused,
 * so removing the claim of a dead process cannot remove that of a live one, the classic race of a single pid file.
 *
 *   claiming ──only claim──▶ held ──▶ ending ──▶ (removed)
 *      │  └─ another is claiming: withdraw, wait for a random time, retry
 *      ├─ another is ending: withdraw, wait for its end
 *      └─ another is held: fail with its pid (or wait, with `waitForAll`)
 *
 * Why not proper-lockfile: it decides that a holder is dead by the age of a file, so a start after a `kill -9` waits for that
 * timeout, and a suspended holder loses the lock while its servers still run. It does not name the holder either.
 *
 * Why not a Unix socket, which the kernel closes with its process: its file remains, and of two contenders that find a dead one, the later
 * removes the socket that the earlier has bound. Its path is also limited to about 100 bytes.
 */
import { randomBytes } from 'node:crypto';
import {
  existsSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { LocalStoreError } from './errors.ts';
import { identify, isAlive } from './processes.ts';

/** The lock while it is held. */
export interface FolderLock {
  /** Marks the lock as about to be released, so that new contenders wait instead of failing. */
  markEnding(): void;
  release(): void;
}

export interface FolderLockOptions {
  /** The folder of the claims; created when missing. */
  readonly claims: string;
  /** How long to wait for a holder that is ending (or for any holder, with `waitForAll`). */
  readonly waitMs: number;
  readonly waitForAll?: boolean;
  /** The error message for a contender, given the pid of the holder. */
  readonly inUseMessage: (pid: number) => string;
}

type ClaimState = 'claiming' | 'held' | 'ending';

interface Claim {
  readonly path: string;
  readonly pid: number;
  readonly state: ClaimState;
}

const CLAIM_NAME = /^\.?(\d+)-(\d+)-[0-9a-f]+$/;

/** A reader may find it empty for a moment: see `stateIn`. */
function writeClaim(path: string, state: ClaimState): void {
  writeFileSync(path, state, { mode: 0o600 });
  // In another user's project root leaves its claims to that user: see giveToProjectOwner.
  const { uid, gid } = statSync(join(path, '..'));
  if (process.getuid?.() === 0 && uid !== 0) lchownSync(path, uid, gid);
}

/** Null when the claim is gone. An earlier version wrote JSON; its process holds the lock as long as it lives. */
function stateIn(path: string): ClaimState | null {
  try {
    const text = readFileSync(path, 'utf8');
    return text === '' || text === 'claiming' ? 'claiming' : text === 'ending' ? 'ending' : 'held';
  } catch {
    return null;
  }
}

/** The claims of live processes. Removes those of dead processes. */
function liveClaims(claims: string): Claim[] {
  const live: Claim[] = [];
  for (const name of readdirSync(claims)) {
    const [, pid, started] = CLAIM_NAME.exec(name) ?? [];
    if (pid === undefined || started === undefined) continue;
    const path = join(claims, name);
    if (!isAlive({ pid: Number(pid), started })) rmSync(path, { force: true });
    else {
      const state = stateIn(path);
      if (state !== null) live.push({ path, pid: Number(pid), state });
    }
  }
  return live;
}

const isHeld = ({ state }: Claim) => state === 'held';

/**
 * Reads which process holds the lock, and takes nothing.
 * @returns its pid; null when there is none, or it is ending
 * @throws a system error when the folder cannot be read
 */
export const holderOf = (claims: string): number | null =>
  existsSync(claims) ? (liveClaims(claims).find(isHeld)?.pid ?? null) : null;

/** @throws LocalStoreError `folder-in-use` */
export async function lockFolder(options: FolderLockOptions): Promise<FolderLock> {
  const { claims, waitMs, waitForAll = false, inUseMessage } = options;
  mkdirSync(claims, { recursive: true, mode: 0o700 });
  const { pid, started } = identify(process.pid)!;
  const path = join(claims, `${pid}-${started}-${randomBytes(6).toString('hex')}`);
  const release = () => rmSync(path, { force: true });
  const deadline = performance.now() + waitMs;
  for (;;) {
    writeClaim(path, 'claiming');
    const others = liveClaims(claims).filter((claim) => claim.path !== path);
    if (others.length === 0) {
      writeClaim(path, 'held');
      const markEnding = () => {
        // A deleted folder has no claims left; the next contender checks for running servers: see orphans.ts.
        if (existsSync(claims)) writeClaim(path, 'ending');
      };
      return { markEnding, release };
    }
    release();
    const holder = others.find(isHeld);
    if ((holder !== undefined && !waitForAll) || performance.now() > deadline) {
      throw new LocalStoreError('folder-in-use', inUseMessage((holder ?? others[0]!).pid));
    }
    await sleep(10 + Math.random() * 90);
  }
}
