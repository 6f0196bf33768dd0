/**
 * Stops the servers of a process that was killed: a shell that reads a pipe whose other end only this process holds. The kernel closes the
 * pipe however the process ends, and the shell then executes the last line that it read. Each line replaces the one before: it names the
 * servers that run at that moment.
 *
 * The shell and the servers are in sessions other than this process's: a Ctrl-C in a terminal reaches none of them. If the shell is killed
 * as well, the next start on the folder stops the servers: see orphans.ts.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { STORE_URLS } from './urls.ts';

const SCRIPT = 'while read -r line; do last=$line; done; eval "$last"';

export class Watcher {
  readonly #shell: ChildProcess;
  readonly #pipe: Socket;
  readonly #servers = new Set<ChildProcess>();

  /** @param folder of the stores */
  constructor(folder: string) {
    // The folder is an argument only to be seen in the list of processes.
    this.#shell = spawn('/bin/sh', ['-c', SCRIPT, 'watcher', folder], {
      cwd: folder,
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    this.#pipe = this.#shell.stdin as Socket;
    // Without a shell the servers are stopped by `stop`, or by the next start.
    for (const part of [this.#shell, this.#pipe]) part.on('error', () => {});
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
    if (this.#shell.pid === undefined || this.#shell.exitCode !== null || this.#shell.signalCode !== null)
      return;
    this.#shell.ref();
    this.#shell.kill('SIGKILL');
    await once(this.#shell, 'exit');
  }
}
