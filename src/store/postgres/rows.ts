/** A row whose columns have the names of what is answered; its instants become ISO 8601. */
export const fromRow = <T>(row: object): T =>
  Object.fromEntries(
    Object.entries(row).map(([name, value]) => [name, value instanceof Date ? value.toISOString() : value]),
  ) as T;
