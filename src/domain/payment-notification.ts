/** What identifies a notification of a payment. */
export interface NotificationName {
  /** As it was sent. */
  readonly notificationId: string;
  /** Whose id it is, because two may use the same; null: ids are taken as they are. */
  readonly provider?: string | null;
}

/** An earlier notification, as it is stored. */
export interface KnownNotification {
  readonly id: string;
  /** Empty: none. Null: not known. */
  readonly provider: string | null;
}

/** As it is stored. */
export const idOf = ({ notificationId, provider = null }: NotificationName): string =>
  provider === null ? notificationId : `${provider}:${notificationId}`;

/** Whether it is the same notification of the same order. A name may have been given to its secret, or taken from it, since. */
export function isRepeat({ id, provider: before }: KnownNotification, given: NotificationName): boolean {
  const { notificationId, provider: now = null } = given;
  // The same text may be the id of an unnamed secret, and that of a named one with its name.
  if (id === idOf(given)) return before === null || before === (now ?? '');
  if (now !== null) return !before && id === notificationId;
  const name = before ?? PROVIDER.exec(id)?.[1] ?? '';
  return name !== '' && id === `${name}:${notificationId}`;
}
const PROVIDER = /^([a-z0-9-]{1,32}):/;
