/** What to do about an error of TLS while connecting to a store. */

const UNKNOWN_CA =
  /^(SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT|UNABLE_TO_VERIFY_LEAF_SIGNATURE|UNABLE_TO_GET_ISSUER_CERT(_LOCALLY)?|CERT_SIGNATURE_FAILURE)$/;
/** How a connection ends whose ends disagree on whether it is encrypted. Other causes are as likely. */
const MISMATCH = /^(ECONNRESET|EPIPE|EPROTO|ETIMEDOUT)$|ETIMEDOUT|Connection is closed|SSL routines/;

/**
 * @param variable that has the URL
 * @returns null when the error has another cause
 */
export function tlsAdvice(variable: string, url: string, error: unknown): string | null {
  const { code = '', message = '' } = error as { code?: string; message?: string };
  const isRedis = /^rediss?[:+]/.test(url);
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return `The server's certificate is for another host name: write a name in ${variable} that the certificate has.`;
  if (code === 'CERT_HAS_EXPIRED')
    return "Renew the certificate of the server, or correct this machine's clock.";
  if (UNKNOWN_CA.test(code)) {
    const or = isRedis ? '' : `, or add sslrootcert=ca.pem to ${variable}`;
    return `Name the certificate authority that issued the server's certificate: NODE_EXTRA_CA_CERTS=ca.pem${or}.`;
  }
  if (/no encryption/.test(message))
    return `If the server requires TLS, add sslmode=verify-full to ${variable}.`;
  if (/does not support SSL/.test(message))
    return `The server is without TLS: remove sslmode from ${variable}.`;
  if (!isRedis || !MISMATCH.test(code || message)) return null;
  return url.startsWith('rediss')
    ? `Check ${variable}. If the server is without TLS, write redis instead of rediss.`
    : `Check ${variable}. If the server requires TLS, write rediss instead of redis.`;
}
