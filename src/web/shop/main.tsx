/** The shop: the list of sales, or one sale. */
import { render } from 'preact';
import { pageData } from '../ui/api.ts';
import { setClock } from '../ui/time.ts';
import { openPage } from './effects.ts';
import { type ListData, ListPage } from './list.tsx';
import type { SaleData } from './model.ts';
import { SalePage } from './sale.tsx';
import './shop.css';

type Data =
  | ({ readonly page: 'list'; readonly now: number } & ListData)
  | ({ readonly page: 'sale' } & SaleData);

const data = pageData<Data>();
const app = document.getElementById('app')!;
setClock(data.now);
app.replaceChildren();
render(data.page === 'list' ? <ListPage data={data} /> : <SalePage page={openPage(data)} />, app);
