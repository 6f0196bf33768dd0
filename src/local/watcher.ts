/**
 * A shell that claims a folder for this process and, when this process is killed, stops its servers.
 *
 * Its command line is the claim. A contender starts its shell and *then* lists the processes: of two at least one sees the other. The
 * servers name the folder and their service too, so the claim outlives a killed shell and a deleted folder. The shell reads a pipe whose
 * other end only this process holds, and at its end executes the last line: a signal to the servers of that moment. A server begins once the
 * shell knows it (server-process.ts). Shell and servers are in other sessions, out of reach of a Ctrl-C. If service and shell are killed, the next start stops the servers.
 * It also ends the shell of a dead service that has not executed its last line yet, which would delete the next one's URLs.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { LocalStoreError } from './errors.ts';
import { findMarked, findUsers, type MarkedProcess, markOf, stopProcesses } from './processes.ts';
import { STORE_URLS } from './urls.ts';

const SCRIPT = 'while read -r line; do last=$line; done; eval "$last"';

/** How long a killed shell may take to be gone, milliseconds. */
const KILLED_MS = 5_000;

export interface Claim {
  /** What is claimed: a real path, or a name. */
  readonly path: string;
  /** Working directory of the shell. */
  readonly cwd: string;
  /** How long to wait for the others. */
  readonly waitMs: number;
  /** Why there is nothing to wait for; null: the others are starting or stopping. */
  refusal(others: readonly MarkedProcess[]): string | null;
  /** The message when the wait is over. @param pid of a process that has the claim */
  inUse(pid: number): string;
}

export class Watcher {
  readonly #shell: ChildProcess;
  readonly #pipe: Socket;
  readonly #servers = new Set<ChildProcess>();

  /** @throws LocalStoreError `folder-in-use` */
  static async claim(claim: Claim): Promise<Watcher> {
    const deadline = performance.now() + claim.waitMs;
    for (;;) {
      const watcher = findUsers(claim.path).length === 0 ? new Watcher(claim) : null;
      const others = findUsers(claim.path).filter(({ pid }) => pid !== watcher?.pid);
      if (watcher !== null && others.length === 0) {
        const late = findMarked(claim.path).filter(
          ({ path, pid }) => path === claim.path && pid !== watcher.pid,
        );
        await stopProcesses(late, 'SIGKILL', KILLED_MS);
        return watcher;
      }
      await watcher?.end();
      const late = performance.now() > deadline ? others.at(0) : undefined;
      const refusal = claim.refusal(others) ?? (late === undefined ? null : claim.inUse(late.owner.pid));
      if (refusal !== null) throw new LocalStoreError('folder-in-use', refusal);
      await sleep(10 + Math.random() * 90);
    }
  }

  private constructor({ path, cwd }: Claim) {
    this.#shell = spawn('/bin/sh', ['-c', SCRIPT, 'watcher', markOf(path)], {
      cwd,
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    this.#pipe = this.#shell.stdin as Socket;
    for (const part of [this.#shell, this.#pipe]) part.on('error', () => {});
    if (this.#shell.pid === undefined) throw new Error('/bin/sh cannot be run');
  }

  get pid(): number {
    return this.#shell.pid!;
  }

  /** @param server leads a process group, which gets SIGINT: Postgres and Redis shut down in order, initdb ends */
  watch(server: ChildProcess): void {
    this.#servers.add(server);
    this.#write();
    server.once('exit', () => {
      this.#servers.delete(server);
      this.#write();
    });
  }

  #write(): void {
    const groups = Array.from(this.#servers, ({ pid }) => ` -${pid}`).join('');
    const stop = groups === '' ? '' : `; kill -s INT --${groups}`;
    if (this.#pipe.writable) this.#pipe.write(`rm -f ${STORE_URLS}${stop}\n`);
  }

  /** From here on, neither the shell nor a server keeps this process alive. */
  unref(): void {
    for (const child of [this.#shell, ...this.#servers]) child.unref();
    this.#pipe.unref();
  }

  /** Ends the shell: the servers have stopped. */
  async end(): Promise<void> {
    if (this.#shell.exitCode !== null || this.#shell.signalCode !== null) return;
    this.#shell.ref();
    this.#shell.kill('SIGKILL');
    await once(this.#shell, 'exit');
  }
}
