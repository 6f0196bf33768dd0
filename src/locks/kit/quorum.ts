/** Answers of several servers. What had not come in time counts as none of them. */
interface Votes {
  readonly yes: number;
  readonly no: number;
  readonly failed: number;
}

/** Asks all servers at once, and counts answers until the rest can change nothing or the time is over. */
export function vote<Node>(
  nodes: readonly Node[],
  quorum: number,
  timeoutMs: number,
  question: (node: Node) => Promise<boolean>,
): Promise<Votes> {
  const votes = { yes: 0, no: 0, failed: 0 };
  const spare = nodes.length - quorum;
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      resolve({ ...votes });
    };
    const timer = setTimeout(end, timeoutMs);
    const count = (answer: keyof Votes) => {
      votes[answer]++;
      const { yes, no, failed } = votes;
      const refused = yes + no >= quorum && no + failed > spare;
      if (yes >= quorum || failed > spare || refused || yes + no + failed === nodes.length) end();
    };
    for (const node of nodes)
      question(node).then(
        (agrees) => count(agrees ? 'yes' : 'no'),
        () => count('failed'),
      );
  });
}
