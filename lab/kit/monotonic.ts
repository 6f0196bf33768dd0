/** The clock that all processes of the machine share. */

/**
 * Nanoseconds on the machine's monotonic clock, which all processes share. A number holds them exactly for the first
 * 104 days that the machine is up, and to 2 ns after that.
 */
export const nowNs = (): number => Number(process.hrtime.bigint());

/** Sleeps until a moment of that clock. */
export async function untilNs(ns: number): Promise<void> {
  for (let leftMs = (ns - nowNs()) / 1e6; leftMs > 0; leftMs = (ns - nowNs()) / 1e6) {
    await new Promise((resolve) => setTimeout(resolve, leftMs));
  }
}
