/** The routes of docs/reference/api.md, from the OpenAPI document. */
import { markdownTable } from '../bench/kit/report/text.ts';
import { openApiDocument } from '../src/http/openapi.ts';
import { ADMIN, ANY, BODY, STORES } from '../src/http/openapi-responses.ts';

interface Schema {
  readonly $ref?: string;
  readonly properties?: Readonly<Record<string, Schema & { readonly const?: string }>>;
  readonly required?: readonly string[];
  readonly oneOf?: readonly Schema[];
  /** Of a list. */
  readonly items?: Schema;
}
interface Operation {
  readonly summary: string;
  readonly description?: string;
  readonly security: readonly object[];
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
  readonly requestBody?: { readonly content: { readonly 'application/json': { readonly schema: Schema } } };
  readonly responses: Readonly<
    Record<string, { readonly description?: string; readonly content?: Record<string, { schema?: Schema }> }>
  >;
}

const document = openApiDocument();
const schemas = document.components?.schemas as Readonly<Record<string, Schema>>;
const resolved = (schema: Schema): Schema =>
  schema.$ref === undefined ? schema : schemas[schema.$ref.split('/').at(-1)!]!;

/** `{"userId","quantity"?}`; of a member that is a list of objects, also their members. */
function shapeOf(schema: Schema): string {
  const { properties = {}, required = [] } = resolved(schema);
  const members = Object.entries(properties).map(([name, { items }]) => {
    const shape = items?.properties === undefined ? '' : `:[${shapeOf(items)}]`;
    return `"${name}"${required.includes(name) ? '' : '?'}${shape}`;
  });
  return `{${members.join(',')}}`;
}

const bodyOf = ({ requestBody }: Operation): string[] =>
  requestBody === undefined ? [] : [`\`${shapeOf(requestBody.content['application/json'].schema)}\``];

function queryOf({ parameters = [] }: Operation): string[] {
  const names = parameters.filter((parameter) => parameter.in === 'query').map(({ name }) => name);
  return names.length === 0 ? [] : [`\`?${names.map((name) => `${name}=`).join('&')}\``];
}

const isAdmin = ({ security }: Operation): boolean =>
  security.some((scheme) => 'adminToken' in scheme) && !security.some((scheme) => 'customerToken' in scheme);

/** What the page says once for all routes, or for all administrative ones. */
const common = (operation: Operation): readonly string[] =>
  [ANY, BODY, STORES, isAdmin(operation) ? ADMIN : []].flat();

function problemsOf(operation: Operation): string {
  const slugs = Object.values(operation.responses).flatMap(({ content }) => {
    const schema = content?.['application/problem+json']?.schema;
    if (schema === undefined) return [];
    return (schema.oneOf ?? [schema]).flatMap(
      (one) => resolved(one).properties?.type?.const?.split('/').at(-1) ?? [],
    );
  });
  const own = slugs.filter((slug) => !common(operation).includes(slug));
  return own.map((slug) => `\`${slug}\``).join(', ') || '–';
}

const successOf = ({ responses }: Operation): string =>
  Object.entries(responses)
    .filter(([status]) => status.startsWith('2'))
    .map(([status, { description }]) => `${status} ${description}`)
    .join('; ');

export function routeTable(): string {
  const rows = Object.entries(document.paths ?? {}).flatMap(([path, methods]) =>
    Object.entries(methods as Record<string, Operation>).map(([method, operation]) => [
      [
        `\`${method.toUpperCase()} ${path}\``,
        ...queryOf(operation),
        ...bodyOf(operation),
        ...(isAdmin(operation) ? ['_admin_'] : []),
      ].join(' '),
      [operation.summary, ...(operation.description === undefined ? [] : [operation.description])].join('. '),
      successOf(operation),
      problemsOf(operation),
    ]),
  );
  const titles = ['route', 'what it does', 'success', 'own problems'];
  return markdownTable({ columns: titles.map((title) => [title, 'left']), rows });
}
