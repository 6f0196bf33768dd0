/** Every route by the name of its operation, in the order of the document. */
import { placeOrder } from '../purchase/route.ts';
import type { Route } from '../route.ts';
import { auditSale, readSaleLog } from './audit.ts';
import { streamConsole } from './console.ts';
import { streamSale } from './events.ts';
import { orderListRoutes } from './order-lists.ts';
import { orderRoutes } from './orders.ts';
import { paymentRoutes } from './payments.ts';
import { pointRoutes } from './points.ts';
import { saleGroupRoutes } from './sale-groups.ts';
import { restockSale, saleRefundRoutes, saleRoutes } from './sales.ts';
import { serviceRoutes } from './service.ts';
import { taskRoutes } from './tasks.ts';
import { createTicket } from './tickets.ts';
import { waitlistRoutes } from './waitlist.ts';

export const routes: Readonly<Record<string, Route>> = {
  ...saleRoutes,
  streamSale,
  auditSale,
  readSaleLog,
  ...waitlistRoutes,
  ...saleGroupRoutes,
  ...saleRefundRoutes,
  restockSale,
  createTicket,
  placeOrder,
  ...orderListRoutes,
  ...orderRoutes,
  ...paymentRoutes,
  ...pointRoutes,
  ...taskRoutes,
  streamConsole,
  ...serviceRoutes,
};
