/** What a usual Express handler reaches that does nothing: the body parsed by express.json(), a fixed reply. */
import express from 'express';
import { reply, serve } from './reply.ts';

const app = express();
app.post('/sales/:saleId/orders', express.json(), (_request, response) => {
  response.status(201).json(reply);
});
serve(app);
