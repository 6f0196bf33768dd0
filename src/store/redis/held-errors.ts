/** What is reported while connections are opened: see `heldErrors`. */
export interface HeldErrors<Report extends unknown[]> {
  /** Keeps a report until `release`, and passes on later ones. */
  report(...report: Report): void;
  /** The first report that is kept. */
  first(): Report | undefined;
  /** The connections are open: passes on what was kept, in order. */
  release(): void;
}

/**
 * Keeps the errors of connections until these are open. An open that fails throws, and that error names the cause: the same errors in the
 * log would hide it.
 */
export function heldErrors<Report extends unknown[]>(
  report: (...report: Report) => void,
): HeldErrors<Report> {
  let held: Report[] | null = [];
  return {
    report: (...one) => void (held === null ? report(...one) : held.push(one)),
    first: () => held?.[0],
    release() {
      const kept = held ?? [];
      held = null;
      for (const one of kept) report(...one);
    },
  };
}
