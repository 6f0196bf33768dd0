/**
 * Traces by OpenTelemetry, sent by OTLP over HTTP. `service.ts` loads this file, and with it OpenTelemetry, only when
 * OTEL_EXPORTER_OTLP_ENDPOINT is set; otherwise tracing costs nothing.
 *
 *   request (continues the client's `traceparent`)
 *     └── purchase attempt
 *           ├── redis …        one command
 *           ├── commit order   from its queue to its result, where the order committer commits
 *           │     └── postgres commit-orders   one statement for many orders: child of the first commit, linked to the others
 *           └── postgres …     one statement
 *
 * A statement or command gets a span only while a span is open in its context. Loops that an attempt started outlive it and
 * get none. Another statement or command for several attempts is a child of one of them at most.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import {
  type Context,
  context,
  propagation,
  type Span,
  SpanKind,
  type SpanOptions,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  parseKeyPairsIntoRecord,
  setGlobalErrorHandler,
  W3CTraceContextPropagator,
} from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import type pg from 'pg';
import type { Config } from '../config/env.ts';
import { limits } from '../config/limits.ts';
import type { Outcome } from '../domain/outcome.ts';
import { saleIdOf } from '../http/purchase/listener.ts';
import type { OrderCommitter } from '../orders/order-committer.ts';
import type { Purchases } from '../orders/purchase.ts';
import type { RedisStore } from '../store/redis/connection.ts';

/** Instrumentation. Each function returns its argument with spans around its calls, or instruments it in place. */
export interface Tracing {
  requests(listener: RequestListener): RequestListener;
  purchases(purchases: Purchases): Purchases;
  committer(committer: OrderCommitter): OrderCommitter;
  postgres(pool: pg.Pool): void;
  redis(store: Pick<RedisStore, 'redis'>): void;
  /** Exports the remaining spans, for at most `limits.traceFlushMs`. */
  stop(): Promise<void>;
}

/** @param onError receives failures to export */
export function startTracing(
  { otlpEndpoint, otlpHeaders, traceRatio, strategy }: Config,
  onError: (error: unknown) => void,
): Tracing {
  const exporter = new OTLPTraceExporter({
    url: `${otlpEndpoint!.replace(/\/+$/, '')}/v1/traces`,
    headers: parseKeyPairsIntoRecord(otlpHeaders ?? undefined),
  });
  const provider = new TracerProvider({
    resource: defaultResource().merge(resourceFromAttributes({ 'service.name': 'stampede' })),
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(traceRatio) }),
    spanProcessors: [new BatchSpanProcessor({ exporter })],
  });
  setGlobalErrorHandler(onError);
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  const tracer = provider.getTracer('stampede');
  /** Open commits by order id. */
  const commits = new Map<string, Span>();

  /** The span of one statement; orders that are being committed in it are its parents. */
  function statementSpan(query: Statement): (InContext & { readonly name: string }) | null {
    const text = typeof query === 'string' ? query : query.text;
    const name = (typeof query === 'string' ? null : query.name) ?? /\w+/.exec(text)?.[0] ?? 'statement';
    const ids = name.startsWith('commit-orders') ? ((query as pg.QueryConfig).values![0] as string[]) : [];
    const [first, ...others] = ids.flatMap((id) => commits.get(id) ?? []);
    if (first === undefined && !isTraced()) return null;
    return {
      name: `postgres ${name}`,
      kind: SpanKind.CLIENT,
      attributes: {
        'db.system.name': 'postgresql',
        ...(ids.length > 0 && { 'stampede.orders': ids.length }),
      },
      links: others.map((span) => ({ context: span.spanContext() })),
      parent: first === undefined ? context.active() : trace.setSpan(context.active(), first),
    };
  }

  return {
    requests: (listener) => (req, res) => {
      const given = propagation.extract(context.active(), req.headers);
      const { method = '' } = req;
      const span = tracer.startSpan(
        method,
        { kind: SpanKind.SERVER, attributes: { 'http.request.method': method } },
        given,
      );
      res.once('close', () => endRequest(span, req, res));
      const inside = trace.setSpan(given, span);
      context.bind(inside, req); // its events come from the parser, which has no context
      context.with(inside, listener, undefined, req, res);
    },
    purchases: (purchases) => ({
      ...purchases,
      attempt: (...asked) =>
        inSpan(
          tracer,
          'purchase attempt',
          { attributes: { 'stampede.strategy': strategy, 'stampede.sale.id': asked[0] } },
          () => purchases.attempt(...asked),
          describeOutcome,
        ),
    }),
    committer(committer) {
      const commit: OrderCommitter['commit'] = async (reservation, noTimeout) => {
        if (!isTraced()) return committer.commit(reservation, noTimeout);
        const { orderId } = reservation;
        const work = () => {
          commits.set(orderId, trace.getActiveSpan()!);
          return committer.commit(reservation, noTimeout).finally(() => commits.delete(orderId));
        };
        return inSpan(
          tracer,
          'commit order',
          { attributes: { 'stampede.order.id': orderId } },
          work,
          (span, { kind }) => span.setAttribute('stampede.result', kind),
        );
      };
      return Object.assign(Object.create(committer) as OrderCommitter, { commit }); // inherits live figures
    },
    postgres: (pool) =>
      tracePool(pool, (query, send) => {
        const options = statementSpan(query);
        return options === null ? send() : inSpan(tracer, options.name, options, send);
      }),
    redis({ redis }) {
      const send = redis.sendCommand;
      redis.sendCommand = (command, ...more) => {
        if (!isTraced()) return send.call(redis, command, ...more);
        const options = { kind: SpanKind.CLIENT, attributes: { 'db.system.name': 'redis' } };
        return inSpan(tracer, `redis ${command.name}`, options, () => send.call(redis, command, ...more));
      };
    },
    async stop() {
      const late = new Promise((resolve) => setTimeout(resolve, limits.traceFlushMs).unref());
      await Promise.race([provider.shutdown(), late]);
    },
  };
}

interface InContext extends SpanOptions {
  /** By default the active one. */
  readonly parent?: Context;
}

/** Runs `work` in a new span, which ends with it. @param describe adds attributes of the result */
function inSpan<T>(
  tracer: Tracer,
  name: string,
  { parent = context.active(), ...options }: InContext,
  work: () => T | Promise<T>,
  describe: (span: Span, value: T) => void = () => {},
): T | Promise<T> {
  const span = tracer.startSpan(name, options, parent);
  const succeed = (value: T): T => {
    describe(span, value);
    span.end();
    return value;
  };
  const fail = (error: unknown): never => {
    span.setStatus({ code: SpanStatusCode.ERROR, message: String((error as Error)?.message ?? error) });
    span.end();
    throw error;
  };
  try {
    const value = context.with(trace.setSpan(parent, span), work);
    return value instanceof Promise ? value.then(succeed, fail) : succeed(value);
  } catch (error) {
    return fail(error);
  }
}

type Statement = string | pg.QueryConfig;

/** Whether a span that is sampled, and has not ended, is open in this context. */
const isTraced = (): boolean => trace.getActiveSpan()?.isRecording() === true;

function endRequest(span: Span, req: IncomingMessage, res: ServerResponse): void {
  const isPurchase = req.method === 'POST' && saleIdOf(req.url ?? '') !== 0;
  const { route } = req as { readonly route?: { readonly path?: unknown } }; // set by Express
  const path = isPurchase ? '/sales/:saleId/orders' : route?.path;
  if (typeof path === 'string') {
    span.updateName(`${req.method} ${path}`);
    span.setAttribute('http.route', path);
  }
  if (res.writableFinished) span.setAttribute('http.response.status_code', res.statusCode);
  if (!res.writableFinished || res.statusCode >= 500) span.setStatus({ code: SpanStatusCode.ERROR });
  span.end();
}

/** Adds attributes of an outcome, without the customer. */
function describeOutcome(span: Span, outcome: Outcome): void {
  span.setAttribute('stampede.outcome', outcome.kind);
  if ('reason' in outcome) span.setAttribute('stampede.reason', outcome.reason);
  if ('order' in outcome) span.setAttribute('stampede.order.id', outcome.order.orderId);
}

type Send = (query: Statement, send: () => Promise<unknown>) => unknown;

/** Passes each statement of a pool, and of the connections that it lends, through `traced`. */
function tracePool(pool: pg.Pool, traced: Send): void {
  // biome-ignore lint/suspicious/noExplicitAny: passes its arguments on in any of their forms
  type Query = (...given: any[]) => any;
  const around =
    (query: Query): Query =>
    (...given) =>
      typeof given.at(-1) === 'function' ? query(...given) : traced(given[0], () => query(...given));
  pool.query = around(pool.query.bind(pool)) as typeof pool.query;
  const connect: Query = pool.connect.bind(pool);
  pool.connect = ((callback?: unknown) => {
    if (callback !== undefined) return connect(callback); // of pool.query
    return connect().then((client: pg.PoolClient) => {
      const { query, release } = client;
      client.query = around(query.bind(client)) as typeof query;
      client.release = (error) => {
        client.query = query;
        release.call(client, error);
      };
      return client;
    });
  }) as typeof pool.connect;
}
