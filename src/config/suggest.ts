/** "Did you mean …?" for error messages. */
import { closestMatch } from 'leven';

/** The known name closest to `name`, ignoring case; null when none is similar. */
export function nearest(name: string, known: readonly string[]): string | null {
  const maxDistance = Math.max(2, Math.floor(name.length / 3));
  return closestMatch(name.toLowerCase(), [...known], { maxDistance }) ?? null;
}

/** For a word of a command line that begins with a dash. */
export function unknownOption(option: string, known: readonly string[]): string {
  const near = nearest(option.replace(/^-+/, ''), known);
  return `there is no option ${option}; ${near === null ? '--help lists them' : `did you mean "--${near}"?`}`;
}

/** The end of an error message: `; did you mean "lua"?`, or every known name when none is similar. */
export function suggestion(name: string, known: readonly string[]): string {
  const near = nearest(name, known);
  if (near !== null) return `; did you mean "${near}"?`;
  return known.length === 0 ? '' : `; known names: ${known.join(', ')}`;
}
