/** The parts of a caller's clients that the locks use. Their own types depend on their versions, and on packages a caller may not have. */

/** A client of ioredis: of one server, of Sentinels or a `Cluster`. */
export interface Ioredis {
  readonly status: string;
  // biome-ignore lint/suspicious/noExplicitAny: see above
  duplicate(...overrides: any[]): any;
}

/** A client of node-redis (the package `redis`): of one server, of Sentinels or of a cluster. */
export interface NodeRedis {
  readonly isOpen: boolean;
  // biome-ignore lint/suspicious/noExplicitAny: see above
  duplicate(overrides?: any): any;
  // biome-ignore lint/suspicious/noExplicitAny: see above
  sendCommand(...given: any[]): Promise<unknown>;
}

/** It need not be connected: the locks open connections of the same kind. */
export type CallersRedis = Ioredis | NodeRedis;

/** A pool of node-postgres (the package `pg`). */
export interface PostgresPool {
  // biome-ignore lint/suspicious/noExplicitAny: see above
  query(text: any, values?: any): Promise<any>;
  // biome-ignore lint/suspicious/noExplicitAny: see above
  connect(): Promise<any>;
  readonly options: object;
}
