/** Secrets of webhooks as Standard Webhooks writes them: `whsec_` and 24 to 64 bytes in base64. */

export interface WebhookSecret {
  /** Scopes the ids of notifications, because two providers may use the same id; null: they are taken as they are. */
  readonly provider: string | null;
  readonly secret: string;
}

const SECRET = /^whsec_(?<key>[A-Za-z0-9+/]+={0,2})$/;
const PROVIDER = /^(?<provider>[a-z0-9-]{1,32}):/;
const BYTES = [24, 64] as const;

/** @param secret `whsec_…`, without a provider @returns what is wrong as a text */
export function parseWebhookSecret(secret: string): WebhookSecret | string {
  const { key } = SECRET.exec(secret)?.groups ?? {};
  const bytes = key === undefined ? 0 : Buffer.from(key, 'base64').length;
  if (bytes >= BYTES[0] && bytes <= BYTES[1]) return { provider: null, secret };
  return `must be whsec_ and ${BYTES.join(' to ')} bytes in base64, such as whsec_$(openssl rand -base64 32)`;
}

/** Several with commas between them, each optionally with `provider:` in front. @returns what is wrong as a text */
export function parseWebhookSecrets(text: string): readonly WebhookSecret[] | string {
  const secrets = text.split(',').map((one) => {
    const { provider = null } = PROVIDER.exec(one.trim())?.groups ?? {};
    const result = parseWebhookSecret(one.trim().replace(PROVIDER, ''));
    return typeof result === 'string' ? result : { ...result, provider };
  });
  const mistake = secrets.find((one) => typeof one === 'string');
  return mistake ?? (secrets as WebhookSecret[]);
}
