/**
 * Mutual exclusion over a folder, on any file system. Node has no flock.
 *
 * Each contender writes a claim, a file named after its process identity, and *then* lists all claims. Of two contenders at
 * least one lists after the other has written, so two can never both find only their own claim. Claim names are never reused,
 * so removing the claim of a dead process cannot remove that of a live one, the classic race of a single pid file. Claims
 * appear by rename and are never half-written; a claim truncated by a power failure belongs to a dead process.
 *
 *   claiming ──only claim──▶ held ──▶ ending ──▶ (removed)
 *      │  └─ another is claiming: withdraw, wait for a random time, retry
 *      ├─ another is ending, or its owner (the service) is dead: withdraw, wait for its end
 *      └─ another is held by a live owner: fail with that owner's pid (or wait, with `waitForAll`)
 *
 * Why not proper-lockfile: it decides that a holder is dead by the age of a file, so a start after a `kill -9` waits for that
 * timeout, and a suspended holder loses the lock while its servers still run. It does not name the holder either.
 */
import { randomBytes } from 'node:crypto';
import {
  existsSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { LocalStoreError, throwIfAborted } from './errors.ts';
import { identify, isAlive, type ProcessIdentity } from './processes.ts';

/** The lock while it is held. */
export interface FolderLock {
  /** Marks the lock as about to be released, so that new contenders wait instead of failing. */
  markEnding(): void;
  release(): void;
}

export interface FolderLockOptions {
  /** The folder of the claims; created when missing. */
  readonly claims: string;
  /** The process on whose behalf the lock is held. Its death means that the holder is about to release. */
  readonly owner: ProcessIdentity;
  /** How long to wait for a holder that is ending (or for any holder, with `waitForAll`). */
  readonly waitMs: number;
  readonly waitForAll?: boolean;
  readonly signal?: AbortSignal;
  /** The error message for a contender, given the pid of the current owner. */
  readonly inUseMessage: (ownerPid: number) => string;
}

type ClaimState = 'claiming' | 'held' | 'ending';

interface Claim {
  readonly holder: ProcessIdentity;
  readonly owner: ProcessIdentity;
  readonly state: ClaimState;
}

const CLAIM_NAME = /^(\d+)-(\d+)-[0-9a-f]+$/;

function writeClaim(claims: string, name: string, owner: ProcessIdentity, state: ClaimState): void {
  const draft = join(claims, `.${name}`);
  writeFileSync(draft, JSON.stringify({ owner, state }), { mode: 0o600 });
  // In another user's project root leaves its claims to that user: see giveToProjectOwner.
  const { uid, gid } = statSync(claims);
  if (process.getuid?.() === 0 && uid !== 0) lchownSync(draft, uid, gid);
  renameSync(draft, join(claims, name));
}

/** Reads a claim; null when it is gone. An unreadable claim counts as held by its own process. */
function readClaim(claims: string, name: string, holder: ProcessIdentity): Claim | null {
  let text: string;
  try {
    text = readFileSync(join(claims, name), 'utf8');
  } catch {
    return null;
  }
  try {
    const { owner, state } = JSON.parse(text) as { owner: ProcessIdentity; state: ClaimState };
    if (typeof owner.pid === 'number' && typeof owner.started === 'string') return { holder, owner, state };
  } catch {
    // falls through
  }
  return { holder, owner: holder, state: 'held' };
}

/** The claims of live processes except `own`. Removes those of dead processes. */
function liveClaims(claims: string, own: string): Claim[] {
  const live: Claim[] = [];
  for (const name of readdirSync(claims)) {
    const [, pid, started] = CLAIM_NAME.exec(name.replace(/^\./, '')) ?? [];
    if (name === own || pid === undefined || started === undefined) continue;
    const holder = { pid: Number(pid), started };
    if (!isAlive(holder)) rmSync(join(claims, name), { force: true });
    else if (!name.startsWith('.')) {
      const claim = readClaim(claims, name, holder);
      if (claim !== null) live.push(claim);
    }
  }
  return live;
}

const isEnding = (claim: Claim) => claim.state === 'ending' || !isAlive(claim.owner);
const holderOf = (claims: readonly Claim[]) =>
  claims.find((claim) => claim.state !== 'claiming' && !isEnding(claim));

/**
 * Reads on whose behalf the lock is held, and takes nothing.
 * @returns the pid of the live owner; null when there is none, or the holder is ending
 * @throws a system error when the folder cannot be read
 */
export const ownerOf = (claims: string): number | null =>
  existsSync(claims) ? (holderOf(liveClaims(claims, ''))?.owner.pid ?? null) : null;

/** @throws LocalStoreError `folder-in-use` or `aborted` */
export async function lockFolder(options: FolderLockOptions): Promise<FolderLock> {
  const { claims, owner } = options;
  mkdirSync(claims, { recursive: true, mode: 0o700 });
  const self = identify(process.pid);
  if (self === null) throw new LocalStoreError('guardian-failed', 'The process table cannot be read.');
  const name = `${self.pid}-${self.started}-${randomBytes(6).toString('hex')}`;
  const release = () => rmSync(join(claims, name), { force: true });
  const deadline = performance.now() + options.waitMs;
  for (;;) {
    writeClaim(claims, name, owner, 'claiming');
    const others = liveClaims(claims, name);
    if (others.length === 0) {
      writeClaim(claims, name, owner, 'held');
      const markEnding = () => {
        // A deleted folder has no claims left; the next contender checks for running servers: see orphans.ts.
        if (existsSync(claims)) writeClaim(claims, name, owner, 'ending');
      };
      return { markEnding, release };
    }
    release();
    throwIfAborted(options.signal);
    const holder = holderOf(others);
    if ((holder !== undefined && !options.waitForAll) || performance.now() > deadline) {
      const ownerPid = (holder ?? others[0])?.owner.pid ?? 0;
      throw new LocalStoreError('folder-in-use', options.inUseMessage(ownerPid));
    }
    await sleep(10 + Math.random() * 90);
  }
}
