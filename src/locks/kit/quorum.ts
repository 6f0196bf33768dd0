import { setImmediate } from 'node:timers/promises';
import { within } from './within.ts';

/** Replies of several servers. A reply after the timeout counts nowhere. */
interface Tally {
  readonly granted: number;
  readonly denied: number;
  readonly failed: number;
}

/**
 * Sends a request to all nodes at once and counts replies until the result is certain or the timeout elapses. Replies that arrived
 * by then count, also if the process was too busy to read them: the caller compares the lease with its deadline.
 */
export async function requestQuorum<Node>(
  nodes: readonly Node[],
  quorum: number,
  timeoutMs: number,
  request: (node: Node) => Promise<boolean>,
): Promise<Tally> {
  const tally = { granted: 0, denied: 0, failed: 0 };
  const minority = nodes.length - quorum;
  const certain = new Promise<true>((resolve) => {
    const count = (reply: keyof Tally) => {
      tally[reply]++;
      const { granted, denied, failed } = tally;
      const isDenied = granted + denied >= quorum && denied + failed > minority;
      const isComplete = granted + denied + failed === nodes.length;
      if (granted >= quorum || failed > minority || isDenied || isComplete) resolve(true);
    };
    for (const node of nodes)
      request(node).then(
        (isGranted) => count(isGranted ? 'granted' : 'denied'),
        () => count('failed'),
      );
  });
  if ((await within(certain, timeoutMs)) === null) await setImmediate(); // the sockets are read before
  return { ...tally };
}
