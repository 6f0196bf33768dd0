/** A service, in this process or in one that may die and start again; its requests to the stores pass through links with rules. */
import { TcpProxy } from '../../lab/proxy.ts';
import { launch, type Run, startService, type TestService } from './service.ts';

type Environment = Readonly<Record<string, string>>;

const START_TRIES = 5;

/** A proxy to a server, and the URL through it. Among several servers, or none, the service itself chooses, without a proxy. */
async function linkTo(url: string): Promise<[TcpProxy, string]> {
  if (url === 'none' || url.includes('+') || url.includes(','))
    return [await TcpProxy.open({ port: 1 }), url];
  const proxy = await TcpProxy.to(url);
  return [proxy, proxy.through(url)];
}

export class Service implements AsyncDisposable {
  readonly links: { readonly postgres: TcpProxy; readonly redis: TcpProxy };
  /** Resolves once it listens. */
  url: Promise<string>;
  #listens: (url: string) => void = () => {};
  #run: Run | null = null;
  #inside: TestService | null = null;
  readonly #env: Environment;
  readonly #isProcess: boolean;
  readonly #folder: string | undefined;
  readonly #log: string[] = [];

  private constructor(env: Environment, isProcess: boolean, links: Service['links'], folder?: string) {
    this.#env = env;
    this.#isProcess = isProcess;
    this.#folder = folder;
    this.links = links;
    this.url = this.#down();
  }

  /**
   * @param env with the URLs of the stores, which the service reaches through proxies
   * @param isProcess whether it may die or freeze
   * @param folder the installation of a process; by default this checkout
   */
  static async open(
    env: { DATABASE_URL: string; REDIS_URL: string } & Environment,
    isProcess: boolean,
    folder?: string,
  ): Promise<Service> {
    const [postgres, DATABASE_URL] = await linkTo(env.DATABASE_URL);
    const [redis, REDIS_URL] = await linkTo(env.REDIS_URL);
    const through = { LOG_LEVEL: 'info', ...env, DATABASE_URL, REDIS_URL };
    return new Service(through, isProcess, { postgres, redis }, folder);
  }

  get pid(): number {
    return this.#run!.process.pid!;
  }

  get log(): readonly string[] {
    return [...this.#log, ...((this.#run ?? this.#inside)?.log ?? [])];
  }

  /** Starts the service, and a few times again if it gives up on a slow machine. */
  async start(): Promise<void> {
    this.#listens(this.#isProcess ? await this.#launched() : await this.#startedHere());
  }

  async #startedHere(): Promise<string> {
    for (let failures = 0; this.#inside === null; )
      this.#inside = await startService(this.#env).catch((error: Error) => {
        if (++failures === START_TRIES) throw error;
        return null;
      });
    return this.#inside.url;
  }

  async #launched(): Promise<string> {
    await this.#ended();
    for (let failures = 1; ; failures++) {
      const run = launch(this.#env, this.#folder === undefined ? {} : { folder: this.#folder });
      this.#run = run;
      const url = await run.url;
      if (url !== null) return url;
      if (failures === START_TRIES) throw new Error(`the service does not start:\n${run.log.join('\n')}`);
      await this.#ended();
    }
  }

  async kill(): Promise<void> {
    this.#run?.process.kill('SIGKILL');
    this.url = this.#down();
    await this.#ended();
  }

  /** SIGTERM, and waits for the end. @returns the exit code */
  async stop(): Promise<number | null> {
    const code = await this.#run!.stop();
    this.url = this.#down();
    await this.#ended();
    return code;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await this.#inside?.stop();
    await Promise.all([this.links.postgres.close(), this.links.redis.close()]);
  }

  async #ended(): Promise<void> {
    const run = this.#run;
    if (run === null) return;
    await run.ended;
    this.#log.push(...run.log);
    this.#run = null;
  }

  #down(): Promise<string> {
    return new Promise((listens) => {
      this.#listens = listens;
    });
  }
}
