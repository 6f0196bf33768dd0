/**
 * What a failed request to a store means for whoever sent it, in the same words for every store:
 *
 *   not-sent      nothing was sent: there was no connection
 *   rejected      the store rejected this write because of its rows; nothing was written, and it would accept another write
 *   conflict      nothing was written; an immediate retry may succeed
 *   unavailable   nothing was written; a later retry may succeed
 *   unknown       no answer came, or the answer does not count: the write may take effect, also later
 *   defect        no state of a healthy store explains it: the caller rethrows the error, so that a defect is never mistaken for load
 *
 * store/failures/ finds the failure of an error, and is the only place that reads the text of a message.
 */
export type Failure =
  | { readonly kind: 'not-sent' | 'conflict' | 'unavailable' | 'unknown'; readonly reason: string }
  | Rejected
  | { readonly kind: 'defect'; readonly reason: 'defect'; readonly error: unknown };

export interface Rejected {
  readonly kind: 'rejected';
  readonly reason: string;
  /** Its name; its SQLSTATE when it has none. Null: a trigger or an operator rejected the write. */
  readonly constraint: string | null;
  /** The SQLSTATE. */
  readonly code: string;
}

/** A failure that a caller handles. */
export type ExpectedFailure = Exclude<Failure, { kind: 'defect' }>;

/** An error of this service whose meaning is known where it is thrown. */
export class FailureError extends Error {
  override readonly name = 'FailureError';
  readonly code = 'ERR_STAMPEDE_STORE_FAILURE';
  readonly store: 'postgres' | 'redis';
  readonly failure: ExpectedFailure;

  constructor(
    store: FailureError['store'],
    kind: 'not-sent' | 'unavailable' | 'unknown',
    reason: string,
    message: string,
  ) {
    super(message);
    this.store = store;
    this.failure = { kind, reason };
  }
}
