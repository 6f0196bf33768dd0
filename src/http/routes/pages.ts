/**
 * The pages. The server renders names, prices, stock and times; the script takes the same data from the page and keeps it up to
 * date. Pages load nothing from other hosts.
 */
import { type RequestHandler, type Response, Router } from 'express';
import { coalesce } from '../../concurrency/coalesce.ts';
import { limits } from '../../config/limits.ts';
import { stateOf } from '../../domain/sale.ts';
import { storeFailure } from '../../store/failures.ts';
import { type AdminTokens, isLocal } from '../admin.ts';
import type { Assets } from '../assets.ts';
import { escaped, frame, saleBody, salesBody } from '../page-markup.ts';
import { areFull, type Reads } from '../reads.ts';

export interface PageContext {
  readonly reads: Pick<Reads, 'sales' | 'waiting'>;
  /** Null: AUTH=none, and visitors choose a name. */
  readonly ticketing: object | null;
  readonly paymentSecrets: readonly unknown[];
  /** Null: the server has no console. */
  readonly adminTokens: AdminTokens | null;
}

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "worker-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const asPage: RequestHandler = (_req, res, next) => {
  res.setHeader('Content-Security-Policy', POLICY);
  next();
};

export function pageRoutes(context: PageContext, assets: Assets): Router {
  const page = frame(assets, context.adminTokens !== null);
  const router = Router();
  router.get('/', asPage, listPage(context, page));
  router.get('/shop/:saleId', asPage, salePage(context, page, assets.url('proof-worker.js')));
  if (context.adminTokens !== null) router.get('/console', asPage, consolePage(context, page));
  router.use(assets.router);
  return router;
}

type Render = ReturnType<typeof frame>;

/** @returns null: no sale has it */
function possibleId(text: string): number | null {
  const id = /^[1-9]\d{0,9}$/.test(text) ? Number(text) : Number.POSITIVE_INFINITY;
  return id <= limits.maxSaleId ? id : null;
}

const authOf = ({ ticketing }: PageContext) => (ticketing === null ? 'none' : 'jwt');

function listPage({ reads }: PageContext, page: Render): RequestHandler {
  /** Rendered once for all who ask for it meanwhile. */
  const render = coalesce(async (before: number | undefined) => {
    const listed = await reads.sales.list(limits.pageLength, before);
    const { nowMs } = await reads.sales.watch(listed.slice(0, 1).map(({ id }) => id));
    const sales = listed.map((sale) => ({ ...sale, state: stateOf(sale, nowMs) }));
    const older = listed.length === limits.pageLength ? `/?before=${listed.at(-1)!.id}` : null;
    const data = { page: 'list', now: nowMs, sales, before, older };
    return page({ title: 'On sale', current: '/', script: 'shop', data, body: salesBody(sales, older) });
  });
  return async (req, res) => {
    const before = possibleId(String(req.query.before)) ?? undefined;
    const html = areFull(reads) ? null : await render(before).catch(inStore);
    if (html === null) return unavailable(res, page);
    send(res, html);
  };
}

function salePage(context: PageContext, page: Render, proofWorker: string): RequestHandler {
  const { reads, paymentSecrets, adminTokens } = context;
  const read = coalesce((saleId: number) => reads.sales.watch([saleId]));
  return async (req, res) => {
    const saleId = possibleId(String(req.params.saleId));
    const find = (id: number) => (areFull(reads) ? null : read(id).catch(inStore));
    const found = saleId === null ? { sales: [], nowMs: 0 } : await find(saleId);
    if (found === null) return unavailable(res, page);
    const [known] = found.sales;
    if (known === undefined) {
      const text = 'Check the address, or <a href="/">see what is on sale</a>.';
      const body = notice('There is no such sale', text);
      return send(res.status(404), page({ title: 'No such sale', current: '', body }));
    }
    const sale = { ...known, state: stateOf(known, found.nowMs) };
    // Only if this client may report a payment without a signature or a token.
    const canPay = paymentSecrets.length === 0 && adminTokens?.areSet === false && isLocal(req);
    const data = { page: 'sale', now: found.nowMs, sale, auth: authOf(context), canPay, proofWorker };
    send(res, page({ title: sale.name, current: '', script: 'shop', data, body: saleBody(sale) }));
  };
}

function consolePage(context: PageContext, page: Render): RequestHandler {
  const data = { needsToken: context.adminTokens!.areSet, auth: authOf(context) };
  const text = 'Without JavaScript, use the <a href="/docs">API</a>.';
  const body = `<noscript>${notice('The console needs JavaScript', text)}</noscript>`;
  const html = page({ title: 'Console', current: '/console', script: 'console', data, body });
  return (_req, res) => send(res, html);
}

const send = (res: Response, html: string): void => void res.type('html').send(html);

/** @returns null for a failure of a store, which gets an error page @throws any other error */
function inStore(error: unknown): null {
  if (storeFailure(error).kind === 'defect') throw error;
  return null;
}

const notice = (title: string, html: string): string =>
  `<div class="wide stack"><h1>${escaped(title)}</h1><p class="soft">${html}</p></div>`;

function unavailable(res: Response, page: Render): void {
  const body = notice('The shop is busy', 'Reload this page in a moment.');
  res.setHeader('Retry-After', String(limits.retryAfterS));
  send(res.status(503), page({ title: 'Busy', current: '', body }));
}
