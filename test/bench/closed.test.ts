import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { type ClosedLoad, runClosedLoop } from '../../bench/load/closed.ts';

/** What the server under load does with the n-th purchase, counted from 0. */
type Behaviour = (n: number, answer: Answer, request: IncomingMessage) => void;

interface Answer {
  accept(): void;
  problem(status: number, slug: string): void;
  /** Cuts the connection without an answer. */
  reset(): void;
  /** Ends the connection in order, without an answer. */
  hangUp(): void;
  /** Sends the first half of an answer, then cuts the connection. */
  half(): void;
}

interface Fake {
  readonly url: string;
  /** The users of the purchases that arrived, in order. */
  readonly seen: string[];
  readonly saleIds: Set<string>;
  /** Purchases under way at the same time, at most. */
  mostAtOnce: number;
  close(): Promise<void>;
}

const orderOf = (userId: string): string => `order-of-${userId}`;

function answerFor(response: ServerResponse, socket: Socket, userId: string): Answer {
  const body = JSON.stringify({
    orderId: orderOf(userId),
    saleIds: [5],
    userId,
    status: 'pending',
    replayed: false,
  });
  return {
    accept: () => response.writeHead(201, { 'content-type': 'application/json' }).end(body),
    problem: (status, slug) =>
      response
        .writeHead(status, { 'content-type': 'application/problem+json' })
        .end(JSON.stringify({ type: `https://stampede.example/problems/${slug}`, title: slug, status })),
    reset: () => socket.resetAndDestroy(),
    hangUp: () => socket.end(),
    half: () => {
      socket.write(`HTTP/1.1 201 Created\r\nContent-Length: ${body.length}\r\n\r\n${body.slice(0, 20)}`);
      setTimeout(() => socket.resetAndDestroy(), 5);
    },
  };
}

async function fakeService(behave: Behaviour): Promise<Fake> {
  let underWay = 0;
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on('end', () => {
      if (request.method !== 'POST') return response.writeHead(200).end('{"status":"ok"}');
      const { userId } = JSON.parse(body) as { userId: string };
      fake.saleIds.add(request.url ?? '');
      underWay += 1;
      fake.mostAtOnce = Math.max(fake.mostAtOnce, underWay);
      response.once('close', () => {
        underWay -= 1;
      });
      fake.seen.push(userId);
      return behave(fake.seen.length - 1, answerFor(response, request.socket, userId), request);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const fake: Fake = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    seen: [],
    saleIds: new Set(),
    mostAtOnce: 0,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  open.push(fake);
  return fake;
}

const open: Fake[] = [];
afterEach(async () => {
  for (const fake of open.splice(0)) await fake.close();
});

const users = (count: number): string[] => Array.from({ length: count }, (_, n) => `user-${n}`);

function attack(fake: Fake, load: Partial<ClosedLoad>): ReturnType<typeof runClosedLoop> {
  return runClosedLoop({
    url: fake.url,
    saleIds: [5],
    users: users(500),
    connections: 10,
    durationMs: 20_000,
    requestTimeoutMs: 1_000,
    ...load,
  });
}

describe('closed loop', () => {
  it('sends every attempt of the list exactly once, and records each answer', async () => {
    const slugs = ['sold-out', 'sale-not-open', 'busy', 'unknown-outcome', 'internal'];
    const statuses = [409, 409, 503, 503, 500];
    const fake = await fakeService((n, answer) => {
      if (n % 6 === 5) answer.accept();
      else answer.problem(statuses[n % 6] ?? 0, slugs[n % 6] ?? '');
    });
    const { history, strangeAnswers } = await attack(fake, {});

    expect([...fake.seen].sort()).toEqual(users(500).sort());
    expect([...fake.saleIds]).toEqual(['/sales/5/orders']);
    expect(history.map(({ id }) => id)).toEqual(Array.from({ length: 500 }, (_, n) => n));
    expect(history.map(({ userId }) => userId)).toEqual(users(500));

    const outcomes = ['sold-out', 'not-open', 'busy', 'unknown', 'unexpected', 'accepted'];
    for (const [n, userId] of fake.seen.entries()) {
      const record = history.find((candidate) => candidate.userId === userId);
      expect(record?.outcome).toBe(outcomes[n % 6]);
      expect(record?.orderId).toBe(n % 6 === 5 ? orderOf(userId) : null);
      expect(record?.status).toBe([...statuses, 201][n % 6]);
    }
    for (const { invokedUs, completedUs } of history) expect(completedUs).toBeGreaterThan(invokedUs);
    expect(strangeAnswers[0]).toMatchObject({ status: 500, body: expect.stringContaining('internal') });
  });

  it('begins attempts in the order of the list', async () => {
    const fake = await fakeService((_n, answer) => answer.accept());
    const { history } = await attack(fake, {});
    const invoked = history.map(({ invokedUs }) => invokedUs);
    expect(invoked).toEqual([...invoked].sort((a, b) => a - b));
  });

  it('ends exactly at the end of the list when there are as many connections as attempts', async () => {
    const fake = await fakeService((_n, answer) => answer.accept());
    const { history } = await attack(fake, { users: users(10) });
    expect(history).toHaveLength(10);
    expect(fake.seen).toHaveLength(10);
  });

  it.each(['reset', 'hangUp', 'half'] as const)(
    'records attempts as unknown when the server does %s',
    async (harm) => {
      const harmed = new Set<string>();
      const fake = await fakeService((n, answer) => {
        if (n % 7 === 3) {
          harmed.add(fake.seen[n] ?? '');
          answer[harm]();
        } else setTimeout(() => answer.accept(), n % 3);
      });
      const { history } = await attack(fake, {});

      expect(history.map(({ userId }) => userId)).toEqual(users(500));
      expect([...fake.seen].sort()).toEqual(users(500).sort());
      for (const { userId, outcome, result, orderId, completedUs, status } of history) {
        if (harmed.has(userId)) {
          expect({ outcome, result, orderId, completedUs, status }).toEqual({
            outcome: 'unknown',
            result: 'info',
            orderId: null,
            completedUs: null,
            status: null,
          });
        } else expect({ outcome, orderId }).toEqual({ outcome: 'accepted', orderId: orderOf(userId) });
      }
      expect(harmed.size).toBeGreaterThan(50);
    },
  );

  it('gives up attempts that are never answered, and goes on', async () => {
    const silent = new Set<string>();
    const fake = await fakeService((n, answer) => {
      if (n % 50 === 20) silent.add(fake.seen[n] ?? '');
      else answer.accept();
    });
    const { history } = await attack(fake, {});
    expect(history).toHaveLength(500);
    const unknown = history.filter(({ outcome }) => outcome === 'unknown').map(({ userId }) => userId);
    expect(new Set(unknown)).toEqual(silent);
    expect(silent.size).toBe(10);
  });

  it('begins nothing after the time is up, and waits for what is under way', async () => {
    const fake = await fakeService((_n, answer) => setTimeout(() => answer.accept(), 150));
    const { history } = await attack(fake, { durationMs: 400 });
    expect(history.length).toBe(fake.seen.length);
    expect(history.length).toBeGreaterThan(10);
    expect(history.length).toBeLessThan(60);
    expect(history.every(({ outcome }) => outcome === 'accepted')).toBe(true);
    expect(fake.mostAtOnce).toBe(10);
    const lastInvokedUs = Math.max(...history.map(({ invokedUs }) => invokedUs));
    expect(lastInvokedUs).toBeLessThan(450_000);
  });

  it('records what was under way when it is ended from outside', async () => {
    const fake = await fakeService((n, answer) => {
      if (n < 100) answer.accept();
      if (n === 105) end.abort();
    });
    const end = new AbortController();
    const begin = performance.now();
    const { history } = await attack(fake, { signal: end.signal, requestTimeoutMs: 10_000 });
    expect(performance.now() - begin).toBeLessThan(3_000);
    expect(history.filter(({ outcome }) => outcome === 'accepted')).toHaveLength(100);
    expect(history.filter(({ outcome }) => outcome === 'unknown')).toHaveLength(10);
    expect(new Set(history.map(({ userId }) => userId))).toEqual(new Set([...fake.seen, ...users(110)]));
  });

  it('does not record what could not be sent, when nobody listens', async () => {
    const fake = await fakeService(() => {});
    await fake.close();
    open.length = 0;
    const { history } = await attack(fake, { durationMs: 200 });
    // A client that ends while its connection is being refused leaves one attempt that it cannot rule out.
    expect(history.length).toBeLessThanOrEqual(10);
    expect(history.every(({ outcome, completedUs }) => outcome === 'unknown' && completedUs === null)).toBe(
      true,
    );
  });
});
