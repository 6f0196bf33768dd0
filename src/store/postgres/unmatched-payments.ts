/** Payments that changed no order. A row is kept until a repeat takes effect: the money is with the provider meanwhile. */
import type pg from 'pg';
import {
  idOf,
  isRepeat,
  type KnownNotification,
  type NotificationName,
} from '../../domain/payment-notification.ts';
import type { UnmatchedPayment } from '../../domain/unmatched-payment.ts';
import { addAuditEvent } from './audit-log.ts';
import { inTransaction, type PostgresStore } from './pool.ts';
import { fromRow } from './rows.ts';

export interface UnmatchedPaymentTable {
  /** Records one, with an event in the audit log; a repeat is counted. @throws what Postgres throws */
  record(payment: Payment & Pick<UnmatchedPayment, 'actor' | 'reason'>): Promise<void>;
  /** Newest first. @param before only those with a smaller id; null: all */
  list(max: number, before: number | null): Promise<readonly UnmatchedPayment[]>;
}

type Payment = NotificationName & Pick<UnmatchedPayment, 'orderId' | 'amountCents'>;

/** The rows of a payment, each locked: usually none or one. */
async function rowsOf(client: pg.PoolClient, payment: Payment) {
  const { rows } = await client.query<KnownNotification & { readonly row: string }>(
    `SELECT id AS row, notification_id AS id, provider FROM unmatched_payments
     WHERE order_id = $1 AND amount_cents = $2 AND right(notification_id, length($3)) = $3 ORDER BY row FOR UPDATE`,
    [payment.orderId, payment.amountCents, payment.notificationId],
  );
  return rows.filter((known) => isRepeat(known, payment));
}

/** Deletes a payment that has taken effect. */
export async function deleteUnmatched(client: pg.PoolClient, payment: Payment): Promise<void> {
  const ids = (await rowsOf(client, payment)).map(({ row }) => row);
  if (ids.length > 0)
    await client.query('DELETE FROM unmatched_payments WHERE id = ANY($1::bigint[])', [ids]);
}

export function unmatchedPaymentTable({ pool }: Pick<PostgresStore, 'pool'>): UnmatchedPaymentTable {
  return {
    record: (payment) =>
      inTransaction(pool, async (client) => {
        const { orderId, amountCents, reason, actor, provider } = payment;
        const [known] = await rowsOf(client, payment);
        const notificationId = known?.id ?? idOf(payment);
        const { rows } = await client.query<{ times: number }>(
          `INSERT INTO unmatched_payments AS u (notification_id, order_id, amount_cents, reason, actor, provider)
           VALUES ($1, $2, $3, $4, $5, $6)
           ON CONFLICT (notification_id, order_id, amount_cents) DO UPDATE
             SET times = u.times + 1, reason = excluded.reason, repeated_at = clock_timestamp()
           RETURNING times`,
          [notificationId, orderId, amountCents, reason, actor, provider ?? ''],
        );
        if (rows[0]!.times === 1)
          await addAuditEvent(client, {
            actor,
            action: 'payment.unmatched',
            subject: `order ${orderId}`,
            details: { notificationId, amountCents, reason },
          });
        return { commit: true, value: undefined };
      }),
    async list(max, before) {
      // `ORDER BY id` would sort by this number, which has no index.
      const { rows } = await pool.query(
        `SELECT id::float8 AS id, notification_id AS "notificationId", order_id AS "orderId", amount_cents AS "amountCents",
           reason, actor, times, received_at AS "receivedAt", repeated_at AS "repeatedAt" FROM unmatched_payments
         WHERE $2::bigint IS NULL OR id < $2 ORDER BY unmatched_payments.id DESC LIMIT $1`,
        [max, before],
      );
      return rows.map(fromRow<UnmatchedPayment>);
    },
  };
}
