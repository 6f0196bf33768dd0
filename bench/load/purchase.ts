/** The body of a purchase, the same from every generator, and how many units each customer asks for. Runs inside k6 as well. */

/** Units of an order: each customer always asks for the same number, from the least to the most. */
export interface Quantities {
  readonly least: number;
  readonly most: number;
}

export const oneUnit: Quantities = { least: 1, most: 1 };

/** Characters of a number of units in a body: all bodies are equally long. */
const width = 3;

/** @param userId ends with the number of the customer */
export function unitsOf(userId: string, { least, most }: Quantities): number {
  return least + (Number(/\d*$/.exec(userId)?.[0] ?? 0) % (most - least + 1));
}

/** The field of a history record: left out when all ask for one. */
export const unitsField = (userId: string, quantities: Quantities): { readonly units?: number } =>
  quantities.most === 1 ? {} : { units: unitsOf(userId, quantities) };

/** Of one unit for all, the body says nothing about it. */
export function purchaseBody(userId: string, quantities: Quantities): string {
  if (quantities.most === 1) return `{"userId":"${userId}"}`;
  return `{"userId":"${userId}","quantity":${String(unitsOf(userId, quantities)).padStart(width)}}`;
}
