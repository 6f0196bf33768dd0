/**
 * A route is one record: who may call it, what it accepts and answers, and its handler. Express serves the record (`routerOf`), and
 * openapi.ts describes it. A request passes these steps, and the first one that refuses it answers it:
 *
 *   guards: authorization, body ──▶ id in the path ──▶ query ──▶ body ──▶ customer ──▶ Idempotency-Key ──▶ handle
 */
import { type Request, type RequestHandler, type Response, Router } from 'express';
import type * as z from 'zod';
import type { ZodOpenApiResponseObject } from 'zod-openapi';
import { limits } from '../config/limits.ts';
import type { IdempotencyKey } from '../store/postgres/idempotency.ts';
import { type Administration, idempotencyKey } from './admin.ts';
import type { Caller } from './callers.ts';
import type { HttpContext } from './context.ts';
import { type ProblemSlug, unknownSale } from './problems.ts';
import { jsonBody, optionalBody, parse } from './requests.ts';
import { orderIdSchema, saleIdSchema, taskIdSchema, userIdSchema } from './schemas.ts';

/** The parameters of paths. */
export const ids = {
  saleId: saleIdSchema,
  orderId: orderIdSchema,
  taskId: taskIdSchema,
  userId: userIdSchema,
};
export type IdName = keyof typeof ids;
type IdIn<P extends string> = P extends `${string}{${infer N extends IdName}}${infer Rest}`
  ? { readonly [K in N]: z.output<(typeof ids)[K]> } & IdIn<Rest>
  : unknown;

type Method = 'get' | 'post' | 'patch' | 'delete';
/** Who may call a route. `ticket`: a customer, with AUTH=jwt by a ticket. */
export type By = 'anyone' | 'customer' | 'ticket' | 'admin';
export type Tag = 'Sales' | 'Orders' | 'Points' | 'Tasks' | 'Service';

export interface RouteContext extends HttpContext {
  /** Null: the server has no administrative routes. */
  readonly admin: Administration | null;
}

/** What a handler receives. */
type Given<P extends string, Q extends z.ZodType, B extends z.ZodType> = IdIn<P> & {
  readonly query: z.output<Q>;
  readonly body: z.output<B>;
  /** The customer, or the administrator; with `anyone` and `ticket` it says nothing. */
  readonly caller: Caller;
  /** Null: the request has none. */
  readonly key: IdempotencyKey | null;
  readonly req: Request;
  readonly res: Response;
};

/** @typeParam S what the route keeps between requests */
interface Served<P extends string, Q extends z.ZodType, B extends z.ZodType, S> {
  readonly query?: Q;
  /** With `ticket`, the handler validates it: what is valid depends on the ticket. */
  readonly body?: B;
  readonly mayOmitBody?: true;
  /** By default, a server has a route unless it is administrative and the server has none of these. */
  isServed?(context: RouteContext): boolean;
  /** A `GET` that is answered while too many reads wait: it reads nothing, or by other connections, or bounds itself. */
  readonly isUnbounded?: boolean;
  /** In place of those that follow from `by` and `body`. */
  guards?(context: RouteContext): RequestHandler[];
  setup?(context: RouteContext): S;
  handle(given: Given<P, Q, B>, context: RouteContext, state: S): unknown;
}

export interface Described {
  readonly summary: string;
  readonly description?: string;
  /** Instead of `Idempotency-Key`. */
  readonly header?: z.ZodObject;
  /** Of another route with the same path. */
  readonly otherQuery?: z.ZodObject;
  readonly answers: Readonly<Record<number, ZodOpenApiResponseObject>>;
  /** Its own, beside those that follow from its path, body, caller, key and stores. */
  readonly problems?: readonly ProblemSlug[];
}

export interface Route extends Served<string, z.ZodType, z.ZodType, unknown>, Partial<Described> {
  readonly method: Method;
  readonly path: string;
  readonly by: By;
  readonly tag: Tag | null;
}

/** Makes routes of a tag. @param isUnbounded see `Served` */
export const tagged =
  (tag: Tag, isUnbounded = false) =>
  <P extends string, Q extends z.ZodType = z.ZodType, B extends z.ZodType = z.ZodType, S = unknown>(
    name: `${Method} ${P}`,
    by: By,
    record: Served<P, Q, B, S> & Described,
  ): Route => ({ isUnbounded, ...undescribed(name, by, record), tag });

/** A route that the document does not have. */
export function undescribed<P extends string, Q extends z.ZodType, B extends z.ZodType, S>(
  name: `${Method} ${P}`,
  by: By,
  record: Served<P, Q, B, S>,
): Route {
  const [method, path] = name.split(' ') as [Method, P];
  return { ...record, method, path, by, tag: null };
}

/** Whether a route has an Idempotency-Key: an administrator's `POST` that is not idempotent by itself. */
export const takesKey = ({ by, method, header }: Route): boolean =>
  by === 'admin' && method === 'post' && header === undefined;

export function routerOf(routes: readonly Route[], context: RouteContext): Router {
  const router = Router();
  for (const route of routes) {
    const { isServed = ({ admin }) => route.by !== 'admin' || admin !== null } = route;
    if (!isServed(context)) continue;
    const state = route.setup?.(context);
    const path = route.path.replace(/\{(\w+)\}/g, ':$1');
    router[route.method](path, ...guardsOf(route, context), async (req, res) => {
      await route.handle(await given(route, req, res, context), context, state);
    });
  }
  return router;
}

function guardsOf({ method, by, body, guards }: Route, context: RouteContext): RequestHandler[] {
  if (guards !== undefined) return guards(context);
  const bytes = by === 'ticket' ? limits.purchaseBodyBytes : limits.bodyBytes;
  const json = body === undefined ? [] : jsonBody(bytes);
  if (by !== 'admin') return json;
  const { authorize, recordAct } = context.admin!;
  return method === 'get' ? [authorize] : [authorize, ...json, recordAct];
}

async function given(route: Route, req: Request, res: Response, { callers }: RouteContext) {
  const named: Partial<Record<IdName, unknown>> = {};
  for (const name of Object.keys(req.params) as IdName[])
    named[name] = parse(ids[name], req.params[name], name);
  // A customer's handler checks it, because it comes after the customer.
  const isFirst = route.by === 'admin' || route.by === 'anyone';
  if (isFirst && Number(named.saleId) > limits.maxSaleId) throw unknownSale(Number(named.saleId));
  const query = route.query && parse(route.query, req.query, 'query');
  const sent = route.mayOmitBody ? optionalBody(req) : req.body;
  const body = route.by === 'ticket' ? sent : route.body && parse(route.body, sent, 'body');
  const caller =
    route.by === 'customer'
      ? await callers.of(req, res)
      : { actor: `admin:${res.locals.admin}`, customer: null };
  const key = takesKey(route) ? idempotencyKey(req, res, body as object | undefined) : null;
  return { ...named, query, body, caller, key, req, res };
}

/**
 * Names the next page of a list in the header `Link`, if the list is full.
 * @param query of this page
 * @param idOf what the query of the next page has as `before`
 */
export function linkNext<T>(
  res: Response,
  path: string,
  page: readonly T[],
  query: { readonly limit: number; readonly before?: unknown; readonly [name: string]: unknown },
  idOf: (last: T) => string | number,
): void {
  const { limit, before: _, ...filter } = query;
  if (page.length < limit) return;
  const next = new URLSearchParams({ before: `${idOf(page.at(-1)!)}`, limit: `${limit}` });
  for (const [name, value] of Object.entries(filter)) if (value !== undefined) next.set(name, String(value));
  res.setHeader('Link', `<${path}?${next}>; rel="next"`);
}
