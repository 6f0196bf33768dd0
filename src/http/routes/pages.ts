/**
 * The pages. The server renders names, prices, stock and times; the script takes the same data from the page and keeps it up to
 * date. Pages load nothing from other hosts but the pictures of the sales that they show: an administrator has named each host, and the
 * policy of a page names those of the sales on it.
 */
import { type Request, type RequestHandler, type Response, Router } from 'express';
import { coalesce } from '../../concurrency/coalesce.ts';
import { limits } from '../../config/limits.ts';
import { isComing, type Sale, type SaleState, stateOf } from '../../domain/sale.ts';
import { expectedFailure } from '../../store/failures/any-store.ts';
import { isLocal } from '../admin.ts';
import { type Assets, type Body, bodyOf, sendBody } from '../assets.ts';
import type { HttpContext } from '../context.ts';
import { escaped, frame, saleBody, salesBody } from '../page-markup.ts';
import { areFull } from '../reads.ts';
import { pageQuerySchema, saleIdSchema } from '../schemas.ts';

type PageContext = Pick<
  HttpContext,
  'reads' | 'ticketing' | 'paymentSecrets' | 'currency' | 'paymentWindowS' | 'adminTokens'
>;

/** @param sales whose pictures the page shows: it may load images from their hosts, and from no others */
const policyFor = (sales: readonly Sale[]): string => {
  const hosts = new Set(
    sales.flatMap(({ imageUrl }) => (imageUrl === null ? [] : [new URL(imageUrl).origin])),
  );
  return POLICY.replace(SELF_IMAGES, [SELF_IMAGES, ...hosts].join(' '));
};
const SELF_IMAGES = "img-src 'self'";
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  SELF_IMAGES,
  "connect-src 'self'",
  "worker-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ');

const CHECK_ADDRESS = 'Check the address, or <a href="/">see what is on sale</a>.';

/** Shows a browser that no page has this address. A program, which asks for JSON or for anything, gets a problem. */
export function missingPage(context: PageContext, assets: Assets): RequestHandler {
  const page = framed(context, assets);
  const body = notice('There is no such page', CHECK_ADDRESS);
  const html = bodyOf('html', page({ title: 'No such page', current: '', body }));
  return async (req, res, next) => {
    if (req.method !== 'GET' || !prefersPage(req)) return next();
    send(req, res.status(404), await html);
  };
}

/** Browsers do. A program asks for JSON, or for anything. */
const prefersPage = (req: Request): boolean => req.accepts(['json', 'html']) === 'html';

const framed = ({ adminTokens, currency }: PageContext, assets: Assets): Render =>
  frame(assets, adminTokens !== null, currency);

export function pageRoutes(context: PageContext, assets: Assets): Router {
  const page = framed(context, assets);
  const router = Router();
  router.get('/', listPage(context, page));
  const sale = salePage(context, page, assets.url('proof-worker.js'));
  router.get('/shop/:saleId', sale);
  // The address of a sale in the API, opened in a browser.
  router.get('/sales/:saleId', (req, res, next) => {
    res.vary('Accept');
    return prefersPage(req) ? sale(req, res, next) : next();
  });
  if (context.adminTokens !== null) router.get('/console', consolePage(context, page));
  router.use(assets.router);
  return router;
}

type Render = ReturnType<typeof frame>;

const authOf = ({ ticketing }: PageContext) => (ticketing === null ? 'none' : 'jwt');

/** The filter of a list: of a query, what is valid. Fields of a form that are left empty are no filter. */
interface Filter {
  readonly before?: number | undefined;
  readonly search: string;
  readonly state: SaleState | '';
}

function filterOf(query: Request['query']): Filter {
  const { before, search, state } = pageQuerySchema.shape;
  return {
    before: before.safeParse(query.before).data,
    search: search.safeParse(query.search).data ?? '',
    state: state.safeParse(query.state).data ?? '',
  };
}

/** With fewer sales, and no filter, the list is no longer than a screen. */
const FEW = 12;

function listPage({ reads }: PageContext, page: Render): RequestHandler {
  /** Rendered once for all who ask for it meanwhile. */
  const render = coalesce(async (filter: string) => {
    const { before, search, state }: Filter = JSON.parse(filter);
    const wanted = { ...(search !== '' && { search }), ...(state !== '' && { state }) };
    const listed = await reads.sales.list({ limit: limits.pageLength, before, ...wanted });
    const { nowMs } = await reads.sales.watch(listed.slice(0, 1).map(({ id }) => id));
    const sales = listed.map((sale) => ({ ...sale, state: stateOf(sale, nowMs) }));
    const query = (last: number | undefined) =>
      `${new URLSearchParams({ ...(last !== undefined && { before: String(last) }), ...wanted })}`;
    const older = listed.length === limits.pageLength ? `/?${query(listed.at(-1)!.id)}` : null;
    const isWhole = search === '' && state === '' && before === undefined && sales.length <= FEW;
    const part = { search, state, isWhole, older };
    const data = { page: 'list', now: nowMs, sales, query: query(before), ...part };
    const body = salesBody(sales, part);
    const html = page({ title: 'On sale', current: '/', script: 'shop', data, body });
    return { sales, html: await bodyOf('html', html) };
  });
  return async (req, res) => {
    const filter = JSON.stringify(filterOf(req.query));
    const list = areFull(reads) ? null : await render(filter).catch(inStore);
    if (list === null) return unavailable(req, res, page);
    send(req, res, list.html, list.sales);
  };
}

function salePage(context: PageContext, page: Render, proofWorker: string): RequestHandler {
  const { reads, paymentSecrets, adminTokens } = context;
  const read = coalesce(async (saleId: number) => {
    const { sales, nowMs } = await reads.sales.watch([saleId]);
    const mayNeedCode = sales.some((sale) => isComing(sale, nowMs));
    return { sales, nowMs, codesFrom: mayNeedCode ? await reads.groups.codesFrom(saleId) : null };
  });
  return async (req, res) => {
    const saleId = saleIdSchema.safeParse(req.params.saleId).data ?? Number.POSITIVE_INFINITY;
    const find = () => (areFull(reads) ? null : read(saleId).catch(inStore));
    const found = saleId > limits.maxSaleId ? { sales: [], nowMs: 0, codesFrom: null } : await find();
    if (found === null) return unavailable(req, res, page);
    const [known] = found.sales;
    if (known === undefined) {
      const body = notice('There is no such sale', CHECK_ADDRESS);
      return sendText(req, res.status(404), page({ title: 'No such sale', current: '', body }));
    }
    const sale = { ...known, state: stateOf(known, found.nowMs) };
    // Only if this client may report a payment without a signature or a token.
    const canPay = paymentSecrets.length === 0 && adminTokens?.areSet === false && isLocal(req);
    const { nowMs: now, codesFrom } = found;
    const paymentWindowS = known.paymentWindowS ?? context.paymentWindowS;
    const shown = { sale, auth: authOf(context), canPay, codesFrom, paymentWindowS, proofWorker };
    const data = { page: 'sale', now, ...shown };
    const body = saleBody(sale, now);
    await sendText(req, res, page({ title: sale.name, current: '', script: 'shop', data, body }), [sale]);
  };
}

function consolePage(context: PageContext, page: Render): RequestHandler {
  const data = { needsToken: context.adminTokens!.areSet };
  const text = 'Without JavaScript, use the <a href="/docs">API</a>.';
  const body = `<noscript>${notice('The console needs JavaScript', text)}</noscript>`;
  const html = bodyOf('html', page({ title: 'Console', current: '/console', script: 'console', data, body }));
  return async (req, res) => send(req, res, await html);
}

function send(req: Request, res: Response, html: Body, sales: readonly Sale[] = []): void {
  res.setHeader('Content-Security-Policy', policyFor(sales));
  sendBody(req, res, html);
}

const sendText = async (req: Request, res: Response, html: string, sales?: readonly Sale[]): Promise<void> =>
  send(req, res, await bodyOf('html', html), sales);

/** @returns null for a failure of a store, which gets an error page @throws any other error */
function inStore(error: unknown): null {
  expectedFailure(error);
  return null;
}

const notice = (title: string, html: string): string =>
  `<div class="wide stack"><h1>${escaped(title)}</h1><p class="soft">${html}</p></div>`;

function unavailable(req: Request, res: Response, page: Render): Promise<void> {
  const body = notice('The shop is busy', 'Reload this page in a moment.');
  res.setHeader('Retry-After', String(limits.retryAfterS));
  return sendText(req, res.status(503), page({ title: 'Busy', current: '', body }));
}
