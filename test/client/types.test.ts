/**
 * The types of `@stampede/client` are those of /openapi.json: TypeScript compares them with a client that is generated from the document.
 */
import { execFile } from 'node:child_process';
import { rm, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { generateSource } from 'oazapfts';
import { expect, it } from 'vitest';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { Stampede } from '../../src/client/index.ts';
import { document, operations } from '../support/openapi.ts';
import { root } from '../support/samples.ts';

/** Operations of operators and of pages, which the client does not have. */
const LEFT_OUT = [
  ...['auditSale', 'exportOrders', 'listUnmatchedPayments', 'listWaitlist', 'readSaleLog'],
  ...['listTasks', 'retryTask', 'discardTask', 'streamSale', 'streamConsole'],
  ...['listStrategies', 'getHealth', 'getReadiness', 'getMetrics', 'previewSaleRefund'],
];
/** The method of an operation. */
const RENAMED: Readonly<Record<string, string>> = { getOrdersOfSale: 'getOrderOfUser' };
const compared = operations.map(({ operationId }) => operationId).filter((one) => !LEFT_OUT.includes(one));
const slugs = Object.values(document.components.schemas).flatMap(
  ({ properties }) => properties?.type?.const?.replace('/problems/', '') ?? [],
);
/** Of operations that are left out; or they end no call. */
const NOT_COMPARED = ['unknown-task', 'internal-error', 'unknown-outcome'];

/** `Same` is exact; `Plain` leaves out `readonly`, and makes one object of an intersection. */
const HELPERS = `
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2) ? true : false;
type Plain<T> = T extends object ? { -readonly [K in keyof T]: Plain<T[K]> } : T;
type Call = (...args: never[]) => Promise<unknown>;

/** What an operation answers: results, and slugs of problems. */
type Data<F extends Call> = Awaited<ReturnType<F>> extends infer R ? (R extends { data: infer D } ? D : never) : never;
type Slugs<D> = D extends { type: \`/problems/\${infer K}\` } ? Exclude<K, 'internal-error' | 'unknown-outcome'> : never;
/** A list of orders is for administrators. */
type Results<D> = D extends { type: \`/problems/\${string}\` } | { orderId: string }[] ? never : Plain<D>;

/** The same of a method. */
type Kinds<A> = A extends { mayHaveHappened: boolean; kind: infer K } ? Exclude<K, 'over-limit'> : never;
type Values<A> = A extends { value: infer V } | { order: infer V } ? Plain<V> : A extends { kind: 'unmatched'; reason: infer R } ? { result: 'unmatched'; reason: R } : never;

type Members<P> = Plain<Omit<P, 'type' | 'title' | 'status' | 'detail'>>;
type Known<K extends keyof client.Problems> = unknown extends client.Problems[K] ? {} : Plain<client.Problems[K]>;
`;

const pascal = (slug: string) => slug.replace(/(?:^|-)(\w)/g, (_, letter: string) => letter.toUpperCase());

/** One line for each comparison. */
function comparison(): string {
  const same = (a: string, b: string) => `true satisfies Same<${a}, ${b}>;`;
  const lines = compared.flatMap((one) => {
    const method = `Awaited<ReturnType<client.Stampede['${RENAMED[one] ?? one}']>>`;
    const data = `Data<typeof api.${one}>`;
    return [same(`Results<${data}>`, `Values<${method}>`), same(`Slugs<${data}>`, `Kinds<${method}>`)];
  });
  const bodies = [
    'NewSale',
    'SaleChanges',
    'Purchase',
    'Refund',
    'PaymentNotification',
    'TicketRequest',
    'NewGroup',
    'Award',
  ];
  for (const one of bodies) lines.push(same(`Plain<api.${one}>`, `Plain<client.${one}>`));
  lines.push(
    same(`Omit<Plain<api.WaitlistRequest>, 'userId'>`, `Omit<Plain<client.Purchase>, 'userId' | 'code'>`),
  );
  for (const slug of slugs.filter((one) => !NOT_COMPARED.includes(one))) {
    // The state is that of a task; `maxPerOrder` makes the kind over-limit.
    const generated = `Omit<api.${pascal(slug)}Problem, 'state' | 'maxPerOrder'>`;
    lines.push(same(`Members<${generated}>`, `Known<'${slug}'>`));
  }
  lines.push(same(`Pick<api.InvalidRequestProblem, 'maxPerOrder'>`, `Partial<Known<'over-limit'>>`));
  lines.push(same(`NonNullable<Parameters<typeof api.listSales>[0]>`, 'Plain<client.SaleQuery>'));
  lines.push(same(`(typeof eventTypes)[number]`, `client.StampedeEvent['type']`));
  return lines.join('\n');
}

const sources = (generated: string) => `import type * as api from './${generated}.ts';
import type * as client from '${root}src/client/index.ts';
import type { eventTypes } from '${root}src/domain/task.ts';
${HELPERS}${comparison()}
`;

it('the client has each operation, except those of operators and pages', () => {
  const methods = Object.getOwnPropertyNames(Stampede.prototype).filter((one) => one !== 'constructor');
  expect(methods.sort()).toEqual(compared.map((one) => RENAMED[one] ?? one).sort());
});

it('the types of the client are those of the document, and a change of the document is noticed', async () => {
  const folder = await temporaryFolder('stampede-test-types-');
  try {
    const file = path.join(folder, 'openapi.json');
    await writeFile(file, JSON.stringify(document));
    const generated = await generateSource(file);
    const changed = generated
      .replace('spreadS?: number;', 'spreadS: number;') // of Sale
      .replace('"/problems/below-sold"', '"/problems/above-sold"')
      .replace('bits: number;', 'bits?: number;')
      .replace('returnUnits?: boolean;', ''); // of Refund
    const files = {
      'package.json': '{"type":"module"}',
      'tsconfig.json': JSON.stringify({
        extends: path.join(root, 'tsconfig.json'),
        compilerOptions: { exactOptionalPropertyTypes: false, rewriteRelativeImportExtensions: false },
        include: ['*.ts'],
        exclude: [],
      }),
      'generated.ts': generated,
      'changed.ts': changed,
      'same.ts': sources('generated'),
      'different.ts': sources('changed'),
    };
    for (const [name, content] of Object.entries(files)) await writeFile(path.join(folder, name), content);
    await symlink(path.join(root, 'node_modules'), path.join(folder, 'node_modules'));
    const tsc = path.join(root, 'node_modules/typescript/bin/tsc');
    const { stdout } = await promisify(execFile)(process.execPath, [tsc], { cwd: folder }).catch(
      (error) => error,
    );
    const found = [...stdout.matchAll(/^(\w+)\.ts\((\d+),/gm)].map(([, file, line]) => [file, Number(line)]);
    const lines = files['different.ts'].split('\n');
    expect(
      found.filter(([file]) => file !== 'different'),
      stdout,
    ).toEqual([]);
    const noticed = found.map(([, line]) => lines[Number(line) - 1]!).join('\n');
    const parts = ['Results<Data<typeof api.getSale>>', 'Slugs<Data<typeof api.restockSale>>'];
    for (const part of [...parts, 'ProofRequiredProblem', 'Plain<api.Refund>'])
      expect(noticed).toContain(part);
  } finally {
    await rm(folder, { recursive: true });
  }
});
