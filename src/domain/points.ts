/** One award, or the reversal of one. Never edited. */
export interface PointsEntry {
  readonly id: number;
  readonly sourceType: string;
  readonly sourceId: string;
  readonly points: number;
  readonly createdAt: string;
}

/** A user's points: the balance is the sum of all entries, of which the newest are listed. */
export interface PointsAccount {
  readonly balance: number;
  readonly entries: readonly PointsEntry[];
}
