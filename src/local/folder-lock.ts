/**
 * One holder for a folder, on any file system, without flock (Node has none).
 *
 * Each contender writes a claim, a file of its own named after its process identity, and *then* lists all
 * claims. Of two contenders at least one lists after the other has written, so two can never both find
 * themselves alone. A claim name is never used twice: removing the claim of a dead process cannot hit a
 * living one, which is where a single pid file with a take-over goes wrong. Claims appear by rename, hence
 * never half-written; one that a power cut truncated belongs to a process that is dead.
 *
 *   claiming ──alone──▶ held ──▶ ending ──▶ (removed)
 *      │  └─ other is claiming: withdraw, wait at random, try again
 *      ├─ other is ending, or its owner (the service) is dead: withdraw, wait for its end
 *      └─ other is held by a living owner: refuse with that owner's pid (or wait, if told so)
 */
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { LocalStoreError, throwIfAborted } from './errors.ts';
import { identify, isAlive, type ProcessIdentity } from './processes.ts';

/** The lock while it is held. */
export interface FolderLock {
  /** Tells newcomers that the end is near, so that they wait for it instead of giving up. */
  markEnding(): void;
  release(): void;
}

export interface FolderLockOptions {
  /** The folder of the claims; made when missing. */
  readonly claims: string;
  /** For whom the lock is held: its death means that the holder is about to let go. */
  readonly owner: ProcessIdentity;
  /** How long to wait for a holder that is ending (or for any holder, with `waitForAll`). */
  readonly waitMs: number;
  readonly waitForAll?: boolean;
  readonly signal?: AbortSignal;
  /** What a refused person reads, given the pid of the owner. */
  readonly refusal: (ownerPid: number) => string;
}

type ClaimState = 'claiming' | 'held' | 'ending';

interface Claim {
  readonly holder: ProcessIdentity;
  readonly owner: ProcessIdentity;
  readonly state: ClaimState;
}

const CLAIM_NAME = /^(\d+)-(\d+)-[0-9a-f]+$/;

function writeClaim(claims: string, name: string, owner: ProcessIdentity, state: ClaimState): void {
  writeFileSync(join(claims, `.${name}`), JSON.stringify({ owner, state }), { mode: 0o600 });
  renameSync(join(claims, `.${name}`), join(claims, name));
}

/** The claim in a file, null when it is gone. One that cannot be read counts as held by its own process. */
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

/** Claims of living processes other than `own`; those of dead ones are removed on the way. */
function livingClaims(claims: string, own: string): Claim[] {
  const living: Claim[] = [];
  for (const name of readdirSync(claims)) {
    const [, pid, started] = CLAIM_NAME.exec(name.replace(/^\./, '')) ?? [];
    if (name === own || pid === undefined || started === undefined) continue;
    const holder = { pid: Number(pid), started };
    if (!isAlive(holder)) rmSync(join(claims, name), { force: true });
    else if (!name.startsWith('.')) {
      const claim = readClaim(claims, name, holder);
      if (claim !== null) living.push(claim);
    }
  }
  return living;
}

const isEnding = (claim: Claim) => claim.state === 'ending' || !isAlive(claim.owner);

/** Takes the lock, or throws `folder-in-use` (or `aborted`). */
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
    const others = livingClaims(claims, name);
    if (others.length === 0) {
      writeClaim(claims, name, owner, 'held');
      const markEnding = () => {
        // A folder that was deleted has no claims left, and whoever comes next looks at the servers: see orphans.ts.
        if (existsSync(claims)) writeClaim(claims, name, owner, 'ending');
      };
      return { markEnding, release };
    }
    release();
    throwIfAborted(options.signal);
    const holder = others.find((claim) => claim.state !== 'claiming' && !isEnding(claim));
    if ((holder !== undefined && !options.waitForAll) || performance.now() > deadline) {
      const ownerPid = (holder ?? others[0])?.owner.pid ?? 0;
      throw new LocalStoreError('folder-in-use', options.refusal(ownerPid));
    }
    await sleep(10 + Math.random() * 90);
  }
}
