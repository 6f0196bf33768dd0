/** Which client a request counts for: X-Forwarded-For counts only from trusted proxies. */
import type { IncomingMessage } from 'node:http';
import { describe, expect, it } from 'vitest';
import { clientAddresses, clientKey } from '../../src/access/client-address.ts';
import { tokenBuckets } from '../../src/access/token-buckets.ts';

const request = (remoteAddress: string | undefined, forwardedFor?: string) =>
  ({
    socket: { remoteAddress },
    headers: forwardedFor === undefined ? {} : { 'x-forwarded-for': forwardedFor },
  }) as unknown as IncomingMessage;

describe('the client of a request', () => {
  const direct = clientAddresses([]);
  const behind = clientAddresses(['10.0.0.0/8', '2001:db8:ffff::1']);

  it.each([
    ['is the peer, whatever it claims', direct, request('203.0.113.7', '198.51.100.1'), '203.0.113.7'],
    ['is the peer, if it is no trusted proxy', behind, request('203.0.113.7', '198.51.100.1'), '203.0.113.7'],
    ['is what the proxy saw', behind, request('10.1.2.3', '198.51.100.1'), '198.51.100.1'],
    [
      'is not what it wrote before that',
      behind,
      request('10.1.2.3', '1.1.1.1, 198.51.100.1'),
      '198.51.100.1',
    ],
    [
      'is found behind two proxies',
      behind,
      request('::ffff:10.0.0.1', '198.51.100.1, 10.9.9.9'),
      '198.51.100.1',
    ],
    [
      'is found behind a proxy that is named with its port',
      behind,
      request('10.1.2.3', '198.51.100.1:4711, 10.9.9.9:80'),
      '198.51.100.1',
    ],
    ['is the proxy, if it names no address', behind, request('10.1.2.3', 'x'.repeat(9_000)), '10.1.2.3'],
    ['has no name, if the peer has gone', behind, request(undefined, '198.51.100.1'), ''],
  ])('%s', (_name, addresses, req, client) => {
    expect(addresses.of(req)).toBe(clientKey(client));
  });

  it('is a /56 of IPv6, and an IPv4 address in either form', () => {
    expect(clientKey('2001:db8:0:12::1')).toBe(clientKey('2001:db8:0:ff::2'));
    expect(clientKey('2001:db8:0:12::1')).not.toBe(clientKey('2001:db8:0:112::1'));
    expect(clientKey('::ffff:203.0.113.7')).toBe(clientKey('203.0.113.7'));
  });

  it('has its connections counted, unless it is a trusted proxy', () => {
    expect(behind.ofSocket(request('10.1.2.3').socket)).toBeNull();
    expect(behind.ofSocket(request('203.0.113.7').socket)).toBe(clientKey('203.0.113.7'));
  });
});

describe('token buckets', () => {
  it('let a second of requests through at once, then the rate', () => {
    const buckets = tokenBuckets(5);
    const taken = (atMs: number) =>
      Array.from({ length: 9 }, () => buckets.take('a', atMs)).filter(Boolean).length;
    expect([taken(0), taken(0), taken(400), taken(60_000)]).toEqual([5, 0, 2, 5]);
    expect(buckets.take('b', 0)).toBe(true);
  });

  it('keep clients apart, and forget those of earlier seconds first', () => {
    const buckets = tokenBuckets(1);
    for (let n = 0; n < 500_000; n++) buckets.take(`past-${n}`, n / 100);
    expect(buckets.take('a', 60_000)).toBe(true);
    for (let n = 0; n < 1_000; n++) expect(buckets.take(`new-${n}`, 60_000)).toBe(true);
    expect(buckets.take('a', 60_000)).toBe(false);
    // More clients than the table has places: some are forgotten, and none pays for another.
    for (let n = 0; n < 200_000; n++) buckets.take(`crowd-${n}`, 60_000);
    for (let n = 0; n < 1_000; n++) expect(buckets.take(`late-${n}`, 60_001)).toBe(true);
  });
});
