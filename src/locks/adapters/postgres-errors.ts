/** What an error that Postgres sent says about its statement. */

/**
 * Classes of SQLSTATEs whose FATAL ends a connection in the middle of a statement; a FATAL of the others comes before the first. A PANIC,
 * such as that of a full disk of the WAL, may follow a commit that is on disk.
 */
export const ENDS_CONNECTION: ReadonlySet<string> = new Set(['08', '53', '57', '58', 'XX']);
/** A cancelled statement: ERROR, although others of its class end the connection. */
const CANCELLED = '57014';
/** Besides the classes: timeouts of a transaction, and files that cannot be written. */
const MAY_END = new Set(['25P03', '25P04', '42501']);

/**
 * Whether Postgres rolled the statement back and keeps the connection: the severity is ERROR. pg passes the severity on in the language
 * of the server (`lc_messages`): where that is not English, the SQLSTATE decides, and one that may have ended the connection counts as
 * if it had.
 * @param severity undefined: it is no error of Postgres
 */
export function isRolledBack(severity: string | undefined, code: string): boolean {
  if (severity === undefined) return false;
  if (severity === 'ERROR' || severity === 'FATAL' || severity === 'PANIC') return severity === 'ERROR';
  return code === CANCELLED || !(ENDS_CONNECTION.has(code.slice(0, 2)) || MAY_END.has(code));
}
