/**
 * What a signal to a command means, for every command that stops in order: the service, the bench, the race, the pictures.
 *
 *   running ──first signal──▶ stopping in order ──a signal later than `limits.sameSignalMs`──▶ ends at once
 *
 * Ctrl-C in a terminal signals every process of the command, and npm forwards SIGINT and SIGTERM to its child: one Ctrl-C is two
 * signals within milliseconds. The commands `audit`, `migrate` and `reconcile` have nothing to stop: their first signal ends
 * them (commands/command.ts).
 */
import { limits } from './limits.ts';

/** SIGHUP: the terminal was closed. SIGQUIT: Ctrl-\. */
export const STOP_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;
type StopSignal = (typeof STOP_SIGNALS)[number];

export interface SignalHandlers {
  /** Begins to stop. Called once. */
  first(signal: StopSignal): void;
  /** Ends the process at once. Called for each signal that comes later than `limits.sameSignalMs` after the first. */
  later(signal: StopSignal): void;
}

/**
 * Handles the signals that stop a process.
 * @param receiver the process
 * @param nowMs a monotonic clock
 */
export function onStopSignals(
  receiver: Pick<NodeJS.EventEmitter, 'on'>,
  { first, later }: SignalHandlers,
  nowMs: () => number = () => performance.now(),
): void {
  let firstMs: number | null = null;
  for (const signal of STOP_SIGNALS) {
    receiver.on(signal, () => {
      if (firstMs === null) {
        firstMs = nowMs();
        first(signal);
      } else if (nowMs() - firstMs > limits.sameSignalMs) later(signal);
    });
  }
}
