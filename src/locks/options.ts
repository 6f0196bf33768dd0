/** The options of an acquisition: their defaults, their bounds, and the error for a mistake in them. */

/** What `acquire` takes besides the resource. What is missing has its default. */
export interface AcquireOptions {
  /**
   * Length of the lease in milliseconds, a whole number from the lock's minimum to `MAX_MS`. A lock that renews extends it.
   * Default: the lock's own, or `DEFAULT_TTL_MS`.
   */
  readonly ttlMs?: number;
  /**
   * How long to wait for the lock, in milliseconds, from 0 to `MAX_MS`. 0 makes a single attempt, which ends when the server replies
   * or its client gives up. Default: the lock's own, or `DEFAULT_WAIT_MS`.
   */
  readonly waitMs?: number;
  readonly signal?: AbortSignal;
  /** A reentrant lock admits the same owner again. By default each acquisition is its own owner. */
  readonly owner?: string;
  /** For a read-write lock: readers share. Default: `write`. */
  readonly mode?: 'read' | 'write';
}

/** Defaults of one lock, for acquisitions that give no other value. */
export type LockDefaults = Pick<AcquireOptions, 'ttlMs' | 'waitMs'>;

/** Options within their bounds. */
export type CheckedOptions = AcquireOptions & Required<LockDefaults>;

export const DEFAULT_TTL_MS = 10_000;
export const DEFAULT_WAIT_MS = 10_000;
/**
 * Bytes of a resource's or an owner's name in UTF-8. A name that is too long for one lock's server would end its session, and with it
 * all other leases of the process.
 */
export const MAX_NAME_BYTES = 512;
/** Longest lease and wait, milliseconds: a timer takes no more. */
export const MAX_MS = 2 ** 31 - 1;

/** A mistake in the arguments of a call, which sent nothing. `option` is the name of the argument; the message says what it must be. */
export class LockOptionsError extends Error {
  override readonly name = 'LockOptionsError';
  readonly code = 'ERR_STAMPEDE_LOCK_OPTIONS';
  readonly option: string;

  constructor(option: string, mustBe: string) {
    super(`${option} must be ${mustBe}`);
    this.option = option;
  }
}

const NAMES = ['ttlMs', 'waitMs', 'signal', 'owner', 'mode'];

/**
 * The one place where all locks check the arguments of an acquisition.
 * @throws LockOptionsError
 */
export function checkedOptions(resource: string, given: AcquireOptions, minTtlMs: number): CheckedOptions {
  // With a brace first, the keys of the resource would have an empty hash tag, and be on several masters of a cluster.
  if (!isName(resource) || resource.startsWith('}'))
    throw new LockOptionsError('resource', `${A_NAME}, that does not begin with "}"`);
  checkNames('options', given, NAMES);
  const { ttlMs = DEFAULT_TTL_MS, waitMs = DEFAULT_WAIT_MS, signal, owner, mode } = given;
  if (!(Number.isInteger(ttlMs) && ttlMs >= minTtlMs && ttlMs <= MAX_MS))
    throw new LockOptionsError('ttlMs', `a whole number from ${minTtlMs} to ${MAX_MS}, not ${ttlMs}`);
  if (!(typeof waitMs === 'number' && waitMs >= 0 && waitMs <= MAX_MS))
    throw new LockOptionsError('waitMs', `a number from 0 to ${MAX_MS}, not ${waitMs}`);
  if (signal !== undefined && typeof signal?.addEventListener !== 'function')
    throw new LockOptionsError('signal', 'an AbortSignal');
  if (owner !== undefined && !isName(owner)) throw new LockOptionsError('owner', A_NAME);
  if (mode !== undefined && mode !== 'read' && mode !== 'write')
    throw new LockOptionsError('mode', '"read" or "write"');
  return { ...given, ttlMs, waitMs };
}

/** @param what is an object whose properties have these names only @throws LockOptionsError */
export function checkNames(what: string, given: object, names: readonly string[]): void {
  if (typeof given !== 'object' || given === null)
    throw new LockOptionsError(what, `an object with any of: ${names.join(', ')}`);
  for (const name in given)
    if (!names.includes(name)) throw new LockOptionsError(name, `one of the options: ${names.join(', ')}`);
}

/** The last argument of `using` and its kind, and the options before it. */
export type OptionsAndWork<W> = readonly [work: W] | readonly [options: AcquireOptions | undefined, work: W];

/** @throws LockOptionsError if the last argument is no function */
export function optionsAndWork<W>(given: OptionsAndWork<W>): [AcquireOptions, W] {
  const [options, work] = given.length === 1 ? [{}, given[0]] : [given[0] ?? {}, given[1]];
  if (typeof work !== 'function') throw new LockOptionsError('work', 'a function');
  return [options, work];
}

const A_NAME = `a text of 1 to ${MAX_NAME_BYTES} bytes of UTF-8, without NUL and lone surrogates`;

const isName = (name: unknown): boolean =>
  typeof name === 'string' &&
  name !== '' &&
  !/\0|\p{Surrogate}/u.test(name) &&
  Buffer.byteLength(name) <= MAX_NAME_BYTES;
