/** A load over HTTP: purchases by customers of whom none comes twice. */

export interface Load {
  /** Where the server answers, without a path. */
  readonly url: string;
  /** The sales that the attempts are spread over: `count` of them, from number `first` on. */
  readonly sales: { readonly first: number; readonly count: number };
  readonly connections: number;
  /** A letter in front of the customers' numbers: loads with different letters have different customers. */
  readonly customers: string;
  /** What ends it: whichever comes first. Null: not that. */
  readonly durationMs: number | null;
  readonly attempts: number | null;
  /** Called now and then with the attempts that were sent so far. */
  readonly onSent?: (attempts: number) => void;
  /** Ends it at once, with this signal's reason. */
  readonly signal: AbortSignal;
}

export interface LoadNumbers {
  readonly durationMs: number;
  /** Requests that were answered. */
  readonly answers: number;
  /** Answers with a status of 400 or more. */
  readonly refused: number;
  /** Requests without an answer but for those under way at the end. */
  readonly unanswered: number;
  /** As the generator tells them; null: nothing was answered. */
  readonly latencyMs: { readonly p50: number; readonly p99: number } | null;
}

export interface Generator {
  /** With its version, for the report. */
  readonly name: string;
  /** @throws when it cannot be run, or was ended by the load's signal */
  run(load: Load): Promise<LoadNumbers>;
}

/** An attempt that is not answered for so long counts as unanswered: longer than any wait inside the service. */
export const answerTimeoutMs = 15_000;
/** Customers are numbered from here, so that all names, and all requests, are equally long. */
export const firstCustomer = 1_000_000_000;

/** What stands before the customer's number in a request, and after it. */
export function requestParts(url: string, saleId: number, customers: string): readonly [string, string] {
  const body = [`{"userId":"${customers}`, '"}'] as const;
  const length = body[0].length + String(firstCustomer).length + body[1].length;
  const head = [
    `POST /sales/${saleId}/orders HTTP/1.1`,
    `Host: ${new URL(url).host}`,
    'Content-Type: application/json',
    `Content-Length: ${length}`,
  ];
  return [`${head.join('\r\n')}\r\n\r\n${body[0]}`, body[1]];
}
