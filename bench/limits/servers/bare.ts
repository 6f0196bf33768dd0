/** The limit of the platform: node:http that reads a POST to its end, looks at nothing, and answers with a fixed reply. */
import { reply, serve } from './reply.ts';

const body = Buffer.from(JSON.stringify(reply));
const headers = { 'Content-Type': 'application/json; charset=utf-8', 'Content-Length': body.length };

serve((request, response) => {
  request.on('data', () => {});
  request.on('end', () => {
    response.writeHead(201, headers);
    response.end(body);
  });
});
