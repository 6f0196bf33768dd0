/** The OpenAPI document, generated from the routes and the schemas that validate their requests. */
import * as z from 'zod';
import { createDocument, type ZodOpenApiOperationObject } from 'zod-openapi';
import { ADMIN, BODY, failures, STORES } from './openapi-responses.ts';
import type { ProblemSlug } from './problems.ts';
import { type By, type Described, type IdName, ids, type Route, type Tag, takesKey } from './route.ts';
import { routes } from './routes/registry.ts';
import { keySchema } from './schemas.ts';

/** Of an administrative request that is not idempotent by itself. */
const keyHeader = z.object({ 'Idempotency-Key': keySchema });

const SECURITY: Readonly<Record<By, Record<string, string[]>[]>> = {
  anyone: [],
  customer: [{ customerToken: [] }, { adminToken: [] }, {}],
  ticket: [{ ticket: [] }, {}],
  admin: [{ adminToken: [] }, {}],
};
const REFUSED: Readonly<Partial<Record<By, readonly ProblemSlug[]>>> = {
  customer: ['unauthorized'],
  admin: ADMIN,
};
const UNKNOWN: Readonly<Partial<Record<IdName, ProblemSlug>>> = {
  saleId: 'unknown-sale',
  orderId: 'unknown-order',
  taskId: 'unknown-task',
};

function operationOf(operationId: string, route: Route & Described): ZodOpenApiOperationObject {
  const { by, tag, body, mayOmitBody = false, otherQuery, answers, problems = [] } = route;
  const named = [...route.path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name as IdName);
  const unknown = UNKNOWN[named[0]!];
  const query = route.query as z.ZodObject | undefined;
  const header = takesKey(route) ? keyHeader : route.header;
  const requestParams = {
    ...(named.length > 0 && { path: z.object(Object.fromEntries(named.map((name) => [name, ids[name]]))) }),
    ...(query !== undefined && { query: otherQuery ? query.extend(otherQuery.shape) : query }),
    ...(header !== undefined && { header }),
  };
  const { summary, description } = route;
  const responses = failures(
    ...(body === undefined ? [] : BODY),
    ...(REFUSED[by] ?? []),
    ...problems,
    ...(unknown === undefined ? [] : [unknown]),
    ...(takesKey(route) ? (['key-reused'] as const) : []),
    ...(tag === 'Service' ? [] : STORES),
  );
  return {
    operationId,
    summary,
    ...(description !== undefined && { description }),
    ...(Object.keys(requestParams).length > 0 && { requestParams }),
    ...(body !== undefined && {
      requestBody: { required: !mayOmitBody, content: { 'application/json': { schema: body } } },
    }),
    tags: [tag!],
    security: SECURITY[by],
    responses: { ...answers, ...responses },
  };
}

const isDescribed = (route: Route): route is Route & Described => route.tag !== null;

function pathsOf() {
  const paths: Record<string, Record<string, ZodOpenApiOperationObject>> = {};
  for (const [operationId, route] of Object.entries(routes))
    if (isDescribed(route))
      paths[route.path] = { ...paths[route.path], [route.method]: operationOf(operationId, route) };
  return paths;
}

const TAGS: Readonly<Record<Tag, string>> = {
  Sales: 'What is sold, how much of it is left, and its administration',
  Orders: 'Tickets, purchases and payments',
  Points: 'Points of customers',
  Tasks: 'External effects of orders',
  Service: 'The state of the service',
};
const bearer = (description: string, format = {}) =>
  ({ type: 'http', scheme: 'bearer', description, ...format }) as const;

/** OpenAPI 3.1. */
export function openApiDocument() {
  return createDocument({
    openapi: '3.1.0',
    info: {
      title: 'Stampede',
      version: '1.1.0',
      description: 'A flash-sale and inventory service. Errors are RFC 9457 problems.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    // Relative to where the document comes from.
    servers: [{ url: '/', description: 'This service' }],
    tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
    paths: pathsOf(),
    components: {
      securitySchemes: {
        adminToken: bearer('A token of ADMIN_TOKEN. Without it, clients on the same machine need none'),
        customerToken: bearer('With AUTH=jwt: a token of the issuer', { bearerFormat: 'JWT' }),
        ticket: bearer('With AUTH=jwt: a ticket of this sale and customer'),
      },
    },
  });
}
