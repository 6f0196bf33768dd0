/**
 * Arrays for statements, written as Postgres reads them. The client library would look at each element and escape it, which
 * for a batch of orders costs more than sending it.
 */

/** Of numbers and ids, which have no character with a meaning. */
export function plainArray(values: readonly (string | number)[]): string {
  return `{${values.join(',')}}`;
}

/** Of any texts. */
export function textArray(values: readonly string[]): string {
  if (values.length === 0) return '{}';
  const special = /["\\]/;
  const safe = special.test(values.join(''))
    ? values.map((value) => value.replace(/["\\]/g, (character) => `\\${character}`))
    : values;
  return `{"${safe.join('","')}"}`;
}
