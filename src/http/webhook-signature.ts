/**
 * Who may report payments: with secrets, whoever signs as Standard Webhooks 1.0 has it (https://www.standardwebhooks.com);
 * without, an administrator.
 *
 *   webhook-id, webhook-timestamp, webhook-signature: v1,base64(HMAC-SHA256(secret, id "." timestamp "." raw body))
 *
 * A timestamp more than 5 minutes away is refused, so that a recorded notification cannot be sent again later; one that is sent
 * again sooner has the same notification id, and no further effect.
 */
import type { RequestHandler } from 'express';
import { Webhook } from 'standardwebhooks';
import type { WebhookSecret } from '../config/access.ts';
import { ProblemError } from './problems.ts';
import { rawBody } from './requests.ts';

const EXPECTED =
  'Sign the notification as Standard Webhooks, with webhook-id, webhook-timestamp and webhook-signature';

/** For a provider that posts here itself: a secret with the prefix `whsec_`, as Stripe's have it, does not make its scheme this one. */
function foreign(headers: Readonly<Record<string, string>>): string {
  const name = Object.keys(headers).find((one) => /^(?!webhook-).*-(signature|transmission-sig)$/.test(one));
  if (name === undefined) return '';
  return ` ${name} is another scheme: verify it in a receiver that signs for this route, see "Payment providers" in docs/how-to/integrate.md.`;
}

/**
 * Accepts a body that one of the secrets signed, and puts the provider's name into `res.locals.provider`. It comes after the
 * body's parser.
 * @param secrets newest first; a rotation has two for a while
 */
export function signedBy(
  secrets: readonly WebhookSecret[],
  onRefused: (reason: 'bad-signature' | 'stale') => void,
): RequestHandler {
  const keys = secrets.map(({ provider, secret }) => ({ provider, webhook: new Webhook(secret) }));
  return (req, res, next) => {
    const headers = req.headers as Record<string, string>;
    let why = '';
    for (const { provider, webhook } of keys) {
      try {
        webhook.verify(rawBody(req), headers, { jsonParse: false });
        res.locals.provider = provider;
        return next();
      } catch (error) {
        why = (error as Error).message;
      }
    }
    onRefused(/timestamp too/.test(why) ? 'stale' : 'bad-signature');
    throw new ProblemError('invalid-signature', `${EXPECTED}: ${why}.${foreign(headers)}`);
  };
}
