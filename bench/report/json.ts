import type { Results } from './results.ts';

export function toJson(results: Results): string {
  return `${JSON.stringify(results, null, 2)}\n`;
}
