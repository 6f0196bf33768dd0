/** Responses in the OpenAPI document: those that a route describes, and one schema for each problem and its headers. */
import * as z from 'zod';
import type { ZodOpenApiResponseObject } from 'zod-openapi';
import { type Problem, type ProblemSlug, problems, repeats } from './problems.ts';

const retryAfter = z.int().min(0).describe('Seconds until a repeat may succeed');
const limited = z
  .string()
  .optional()
  .describe('Wrong tokens of this address, as draft-ietf-httpapi-ratelimit-headers-08 defines it');

/** Headers of problems by status; a header is required if every problem of the status has it. */
const HEADERS: Readonly<Record<number, Record<string, z.ZodType>>> = {
  401: {
    'WWW-Authenticate': z.string().describe('The scheme `Bearer`'),
    RateLimit: limited,
    'RateLimit-Policy': limited,
  },
  409: { 'Retry-After': retryAfter },
  429: { 'Retry-After': retryAfter, RateLimit: limited, 'RateLimit-Policy': limited },
  503: { 'Retry-After': retryAfter },
};

/** Statuses with which the HTTP server below the routes sends `invalid-request`: see node-server.ts. */
const MALFORMED = {
  408: ['RequestTimeout', 'The request did not arrive in time'],
  417: ['ExpectationFailed', 'The only supported expectation is 100-continue'],
  431: ['HeadersTooLarge', 'The headers are too large'],
} as const;

const schemaOf = (slug: ProblemSlug, status: number) => {
  const { members = {} } = problems[slug] as Problem;
  return z.object({
    type: z.literal(`/problems/${slug}`),
    title: z.string(),
    status: z.literal(status),
    detail: z.string().describe('For people'),
    ...members,
  });
};

/** `sold-out` → `SoldOut` */
const nameOf = (slug: string) => slug.replace(/(?:^|-)(.)/g, (_, letter: string) => letter.toUpperCase());

/** What a problem means, and whether and when to repeat the request. */
function describe(slug: ProblemSlug): string {
  const { title, meaning, repeat }: Problem = problems[slug];
  return `${title}: ${meaning}. ${repeat === undefined ? 'Do not repeat' : `Repeat ${repeats[repeat]}`}.`;
}

const slugs = Object.keys(problems) as ProblemSlug[];
const schemas = new Map(
  slugs.map((slug) => {
    const id = `${nameOf(slug)}Problem`;
    return [slug, schemaOf(slug, problems[slug].status).meta({ id, description: describe(slug) })];
  }),
);

/** @param type of the body, such as `text/csv` */
export const response = (
  type: string,
  schema: z.ZodType,
  description: string,
  headers: Record<string, z.ZodType> = {},
): ZodOpenApiResponseObject => ({
  description,
  content: { [type]: { schema } },
  ...(Object.keys(headers).length > 0 && { headers: z.object(headers) }),
});
export const json = response.bind(null, 'application/json');
/** A stream of server-sent events; the schema is that of the data of one event. */
export const events = response.bind(null, 'text/event-stream');
const problem = response.bind(null, 'application/problem+json');

export const location = (of: string) => ({
  Location: z.string().meta({ format: 'uri-reference', description: `The path of the ${of}` }),
});

function problemResponse(status: number, members: readonly ProblemSlug[]): ZodOpenApiResponseObject {
  const [first, ...others] = members.map((slug) => schemas.get(slug)!);
  const headers = Object.entries(HEADERS[status] ?? {}).map(([name, schema]) => {
    const named = members.map((slug) => (problems[slug] as Problem).headers ?? []);
    return [name, named.every((names) => names.includes(name)) ? schema : schema.optional()] as const;
  });
  const schema = others.length === 0 ? first! : z.discriminatedUnion('type', [first!, ...others]);
  const description = members.map((slug) => `\`${slug}\`: ${describe(slug)}`).join(' ');
  return problem(schema, description, Object.fromEntries(headers));
}

/** Any route may answer with these. */
export const ANY: ProblemSlug[] = ['invalid-request', 'too-many-requests', 'internal-error'];
const shared = new Map(
  ANY.map((slug) => [slug, { ...problemResponse(problems[slug].status, [slug]), id: nameOf(slug) }]),
);
const malformed = Object.entries(MALFORMED).map(([status, [id, description]]) => {
  const schema = schemaOf('invalid-request', Number(status));
  return [status, { id, ...problem(schema, `\`invalid-request\`: ${description}`) }];
});

/** The responses with problems of a route, beside those of any route. */
export function failures(...own: ProblemSlug[]): Record<string, ZodOpenApiResponseObject> {
  const byStatus = new Map<number, ProblemSlug[]>();
  for (const slug of new Set(own)) {
    const { status } = problems[slug];
    byStatus.set(status, [...(byStatus.get(status) ?? []), slug]);
  }
  return Object.fromEntries([
    ...[...shared].map(([slug, response]) => [problems[slug].status, response]),
    ...malformed,
    ...[...byStatus].map(([status, members]) => [status, problemResponse(status, members)]),
  ]);
}

/** The header `Link` of a list. */
export const nextPage = (path: string) => ({
  Link: z.string().optional().describe(`With a next page: \`<${path}?before=…>; rel="next"\``),
});

/** Any route that uses a store may answer with these and `Retry-After`. */
export const STORES: ProblemSlug[] = ['busy', 'unknown-outcome'];
export const BODY: ProblemSlug[] = ['too-large', 'unsupported-media-type'];
/** `not-found`: with ADMIN_PORT, on the other port. */
export const ADMIN: ProblemSlug[] = ['unauthorized', 'forbidden', 'not-found'];
