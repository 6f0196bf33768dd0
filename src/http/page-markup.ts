/** The HTML of the pages. src/web/shop renders the same elements and classes. */
import { limits } from '../config/limits.ts';
import { moneyIn } from '../domain/money.ts';
import {
  barClass,
  groupedSales,
  isComing,
  isLong,
  placeholderOf,
  type Sale,
  type SaleState,
  saleStates,
  shownStates,
  stockText,
} from '../domain/sale.ts';
import type { Assets } from './assets.ts';

export interface Page {
  readonly title: string;
  /** Path of the navigation entry that is marked as current. */
  readonly current: string;
  /** Name of its script and style; left out: it has none. */
  readonly script?: 'shop' | 'console';
  /** Data for the script. */
  readonly data?: object;
  /** HTML inside `main`. */
  readonly body: string;
}

type ShownSale = Sale & { readonly state: SaleState };

const ENTITIES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
export const escaped = (text: string): string => text.replace(/[&<>"]/g, (char) => ENTITIES[char]!);

/** Inside a script element, where only `</script` and `<!--` could end it. */
const asData = (data: object): string => JSON.stringify(data).replaceAll('<', '\\u003c');

export const MARK =
  '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M2 4h9l-3.2 6.2H14L4.5 21l2.3-7.4H2zM13.5 4H22l-5.6 9.4-2.1-3.2h-3.7z"/></svg>';

/** @param currency of sales that name none, for the scripts */
export function frame(assets: Assets, hasConsole: boolean, currency: string): (page: Page) => string {
  const anchor = (to: string, name: string, current = '') =>
    `<a href="${to}"${to === current ? ' aria-current="page"' : ''}>${name}</a>`;
  // Not for customers: in the head of the console, and in the foot of the shop.
  const forStaff = (current: string) =>
    hasConsole ? anchor('/console', 'Console', current) + anchor('/docs', 'API', current) : '';
  const style = (name: string) => `<link rel="stylesheet" href="${assets.url(name)}">`;
  return ({ title, current, script, data, body }) => {
    const isShop = current !== '/console' && current !== '/docs';
    return `<!doctype html>
<html lang="en" data-currency="${currency}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)} · Stampede</title>
<meta name="color-scheme" content="light dark">
${style('style.css')}${script === undefined ? '' : style(`${script}.css`)}
<link rel="icon" type="image/svg+xml" href="${assets.url('icon.svg')}">
${script === undefined ? '' : `<script type="module" src="${assets.url(`${script}.js`)}"></script>`}
</head>
<body>
<header class="top"><div class="wide"><a class="brand" href="/">${MARK}Stampede</a><nav aria-label="Pages">${anchor('/', 'On sale', current)}${isShop ? '' : forStaff(current)}</nav></div></header>
<main id="app">${body}</main>
<footer class="foot"><div class="wide row">Countdowns use the server’s clock.${isShop ? forStaff(current) : ''}</div></footer>
${data === undefined ? '' : `<script type="application/json" id="data">${asData(data)}</script>`}
</body>
</html>
`;
  };
}

const time = (iso: string) => `<time datetime="${iso}">${iso.slice(0, 16).replace('T', ' ')} UTC</time>`;

function pill({ state }: ShownSale): string {
  const [tone, text] = shownStates[state];
  return `<span class="pill ${tone}">${text}</span>`;
}

function bar({ stock, remaining }: ShownSale): string {
  const value = Math.max(0, remaining);
  return `<progress class="${barClass(remaining, stock)}" aria-label="Units left" value="${value}" max="${Math.max(1, stock)}">${value}</progress>`;
}

function picture({ name, imageUrl }: Sale): string {
  const { initials, hue } = placeholderOf(name);
  const shown =
    imageUrl === null
      ? `<span aria-hidden="true">${initials}</span>`
      : `<img src="${escaped(imageUrl)}" alt="" width="800" height="600" referrerpolicy="no-referrer">`;
  return `<div class="picture hue-${hue}${imageUrl === null ? ' none' : ''}">${shown}</div>`;
}

const price = (sale: Sale): string => moneyIn(sale.currency).text(sale.priceCents);

/** Part of the list of sales. */
export interface ListPart {
  readonly search: string;
  /** Empty: any. */
  readonly state: SaleState | '';
  /** Whether the list is short and whole, so that it needs no filter. */
  readonly isWhole: boolean;
  /** The address of the next page; null: there is none. */
  readonly older: string | null;
}

function filterForm({ search, state }: ListPart): string {
  const options = saleStates.map(
    (one) => `<option value="${one}"${one === state ? ' selected' : ''}>${shownStates[one][1]}</option>`,
  );
  return `<form class="row filter"><input type="search" name="search" value="${escaped(search)}" maxlength="${limits.saleNameLength}" dir="auto" placeholder="Search" aria-label="Search by name">
<select name="state" aria-label="State"><option value="">All states</option>${options.join('')}</select><button class="slim">Show</button></form>`;
}

const NOTHING = `<div class="card empty"><h2>Nothing is on sale yet</h2><p class="soft">Please come back later.</p></div>`;
const NO_MATCH = `<div class="card empty"><h2>No sale matches</h2><p><a href="/">Show all sales</a></p></div>`;

export function salesBody(sales: readonly ShownSale[], part: ListPart): string {
  const itemOf = (sale: ShownSale) =>
    `<li><a class="card sale ${sale.state}" href="/shop/${sale.id}">${picture(sale)}
<h3 dir="auto">${escaped(sale.name)}</h3><span class="row apart"><b>${price(sale)}</b>${pill(sale)}</span>
<span class="stack tight">${bar(sale)}<span class="label">${stockText(sale, sale.state)}</span></span></a></li>`;
  const groups = groupedSales(sales).map(([title, group]) => {
    const list = `<ul class="sales">${group.map(itemOf).join('')}</ul>`;
    return `<section class="stack"><h2>${title}</h2>${list}</section>`;
  });
  const list = sales.length > 0 ? groups.join('') : part.isWhole ? NOTHING : NO_MATCH;
  const next = part.older === null ? '' : `<p><a href="${escaped(part.older)}">Older sales</a></p>`;
  return `<div class="wide stack list"><h1>On sale</h1>${part.isWhole ? '' : filterForm(part)}${list}${next}</div>`;
}

export function saleBody(sale: ShownSale, nowMs: number): string {
  const [label, at] = isComing(sale, nowMs)
    ? ['Opens', sale.startsAt]
    : [sale.state === 'ended' ? 'Ended' : 'Ends', sale.endsAt];
  const when =
    at === null ? '' : `<div class="countdown"><p class="label">${label}</p><p>${time(at)}</p></div>`;
  const about =
    sale.description === null
      ? ''
      : `<p class="about${isLong(sale.description, 160) ? ' long' : ''}" dir="auto">${escaped(sale.description)}</p>`;
  return `<div class="wide shop"><div class="column">${picture(sale)}${about}</div>
<div class="column"><section class="stack product ${sale.state}"><h1 dir="auto"${isLong(sale.name) ? ' class="long"' : ''}>${escaped(sale.name)}</h1>
<div class="row apart"><p class="price">${price(sale)}</p>${pill(sale)}</div>
${when}<div class="stack tight">${bar(sale)}<p class="stock">${stockText(sale, sale.state)}</p></div></section>
<section class="card stack your"><noscript><p class="notice">Buying on this page needs JavaScript.</p></noscript></section></div></div>`;
}
