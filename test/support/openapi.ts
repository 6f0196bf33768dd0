/** Checks answers against the OpenAPI document: status, body, and every header that HTTP or Helmet does not define. */

import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { openApiDocument } from '../../src/http/openapi.ts';

interface Response {
  readonly $ref?: string;
  readonly content?: Readonly<Record<string, object>>;
  readonly headers?: Readonly<Record<string, { readonly required?: boolean }>>;
}
interface Operation {
  readonly operationId: string;
  readonly responses: Readonly<Record<string, Response>>;
}
interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: {
    readonly responses: Readonly<Record<string, Response>>;
    readonly schemas: Readonly<Record<string, { readonly properties?: { type?: { const?: string } } }>>;
  };
}

/** The document as a client reads it. */
export const document = JSON.parse(JSON.stringify(openApiDocument())) as Document;

export const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, { operationId, responses }]) => ({
    method: method.toUpperCase(),
    // Express ignores case, and a slash at the end.
    path: new RegExp(`^${path.replace(/\{\w+\}/g, '[^/]+')}/?$`, 'i'),
    operationId,
    responses,
    place: pointer('paths', path, method, 'responses'),
  })),
);

// Not strict: the root of the schemas is the whole document, not a schema.
const ofBody = addFormats.default(new Ajv2020({ strict: false })).addSchema(document, 'document');
const ofHeader = addFormats
  .default(new Ajv2020({ strict: false, coerceTypes: true }))
  .addSchema(document, 'document');

function pointer(...keys: string[]): string {
  return keys.map((key) => `/${encodeURIComponent(key.replace(/~/g, '~0').replace(/\//g, '~1'))}`).join('');
}

/** What is wrong with a value by the schema at a place in the document; null: nothing. */
function errorsOf(validator: typeof ofBody, place: string, value: unknown): string | null {
  const validate = validator.getSchema(`document#${place}`)!;
  return validate(value) ? null : validator.errorsText(validate.errors, { dataVar: '' });
}

const GENERIC =
  /^(date|connection|keep-alive|cache-control|content-(type|length|security-policy)|transfer-encoding|cross-origin-.*|origin-agent-cluster|referrer-policy|vary|x-.*)$/;

export interface Received {
  readonly status: number;
  readonly headers: Headers;
  /** Parsed if it is JSON; the data of the first event of a stream. */
  readonly body: unknown;
}

/** The operation that a request is for; undefined: a page, or no route. */
export const operationOf = (method: string, path: string) =>
  operations.find((one) => one.method === method && one.path.test(path));

/** What the document does not describe in an answer; null: nothing. For an unknown route only problems are checked. */
export function undescribed(method: string, path: string, received: Received): string | null {
  const { status, headers, body } = received;
  const type = headers.get('content-type')?.split(';')[0] ?? '';
  const operation = operationOf(method, path);
  if (operation === undefined) return type === 'application/problem+json' ? unknownProblem(body) : null;
  const listed = operation.responses[status];
  if (listed === undefined) return `the status is not among ${Object.keys(operation.responses)}`;
  const { content = {}, headers: described = {} } =
    listed.$ref === undefined ? listed : document.components.responses[listed.$ref.split('/').at(-1)!]!;
  const place = listed.$ref?.slice(1) ?? `${operation.place}/${status}`;
  if (type === '' && Object.keys(content).length === 0) return null;
  if (content[type] === undefined) return `the type ${type} is not among ${Object.keys(content)}`;
  const names = new Set(Object.keys(described).map((name) => name.toLowerCase()));
  const unknown = [...headers.keys()].filter((name) => !names.has(name) && !GENERIC.test(name));
  if (unknown.length > 0) return `the header ${unknown}`;
  for (const [name, { required = false }] of Object.entries(described)) {
    const value = headers.get(name);
    if (value === null && required) return `there is no ${name}`;
    const errors =
      value === null ? null : errorsOf(ofHeader, place + pointer('headers', name, 'schema'), value);
    if (errors !== null) return `${name}${errors}`;
  }
  return errorsOf(ofBody, place + pointer('content', type, 'schema'), body);
}

function unknownProblem(body: unknown): string | null {
  const { type } = body as { type?: string };
  const known = Object.entries(document.components.schemas).find(
    ([, one]) => one.properties?.type?.const === type,
  );
  return known === undefined
    ? `no schema has the type ${type}`
    : errorsOf(ofBody, pointer('components', 'schemas', known[0]), body);
}
