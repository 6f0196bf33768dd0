/**
 * The chart, without a cluster: helm renders what docs/how-to/run-on-kubernetes.md installs, kubernetes-validate compares it with the
 * schemas of Kubernetes, and the service starts as in the pods.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { parse, parseAllDocuments, stringify } from 'yaml';
import { temporaryFolder } from '../lab/kit/temporary-folder.ts';
import { parseEnv, variableNames } from '../src/config/env.ts';
import { limits } from '../src/config/limits.ts';
import { fileVariables } from '../src/config/value-files.ts';
import { serviceUrlOf } from '../src/local/postgres-roles.ts';
import { choices } from '../src/service/core.ts';
import { buy, call, post } from './support/client.ts';
import { opened } from './support/opened.ts';
import { commandsOf, execute, root, text } from './support/samples.ts';
import { runCommand, spawnService } from './support/service.ts';
import { openDatabase, openTestStores } from './support/stores.ts';

// biome-ignore lint/suspicious/noExplicitAny: documents of many kinds
type Resource = any;

const chart = (file: string) => text(`ops/helm/stampede/${file}`);
const missing = ['helm', 'kubernetes-validate'].filter(
  (name) => spawnSync(name, ['--help']).error !== undefined,
);

/** What the page installs: each command of helm, rendered. */
const installs: Resource[][] = [];

/** Runs the commands of the page: kubectl does nothing, and helm renders. @throws with what helm says */
async function render(commands: string): Promise<Resource[]> {
  const folder = await temporaryFolder('stampede-test-helm-');
  writeFileSync(path.join(folder, 'kubectl'), '#!/bin/sh\n');
  chmodSync(path.join(folder, 'kubectl'), 0o755);
  const script = commands.replace('helm upgrade --install', 'helm template --kube-version 1.30');
  const PATH = `${folder}:${process.env.PATH}`;
  const said = await execute(root, { PATH }, 'sh', '-ec', script).finally(() =>
    rm(folder, { recursive: true }),
  );
  return parseAllDocuments(said.replace(/^walk\.go.*\n/gm, '')).map((document) => document.toJS());
}

/** @returns one line for each document that is not valid, as kubernetes-validate says it: also for those without a schema */
function invalid(documents: readonly Resource[], ...args: string[]): string[] {
  const input = documents.map((one) => JSON.stringify(one)).join('\n---\n');
  const { stdout, stderr } = spawnSync('kubernetes-validate', ['--strict', ...args, '-'], {
    input,
    encoding: 'utf8',
  });
  const lines = `${stdout}${stderr}`.trim().split('\n');
  expect(lines).toHaveLength(documents.length);
  return lines.filter((line) => !/^INFO - passed for resource /.test(line));
}

const isStandard = ({ apiVersion }: Resource) => !apiVersion.startsWith('monitoring.coreos.com/');
const find = (documents: readonly Resource[], kind: string, name = /./): Resource =>
  documents.find((one) => one.kind === kind && name.test(one.metadata.name));

it('the chart knows every variable: secret ones and URLs by Secret, others by value, except its own', () => {
  const { properties } = JSON.parse(chart('values.schema.json'));
  const secrets = fileVariables(variableNames).map((name) => name.replace(/_FILE$/, ''));
  expect(properties.secrets.propertyNames.enum.sort()).toEqual(secrets.sort());
  const own = /^(PORT|HOST|ADMIN_PORT|ADMIN_HOST|SHUTDOWN_DELAY_MS|MIGRATE|LOCAL_REDIS)$/;
  const isSecret = /SECRET|TOKEN|HEADERS|DATABASE|^RED(IS_URL|LOCK)/;
  const plain = variableNames.filter((name) => !own.test(name) && !isSecret.test(name));
  expect(properties.env.propertyNames.enum.sort()).toEqual(plain.sort());
});

describe.skipIf(missing.length > 0)(`helm${missing.map((name) => ` (missing: ${name})`).join('')}`, () => {
  beforeAll(async () => {
    const commands = commandsOf(text('docs/how-to/run-on-kubernetes.md'));
    for (const command of commands) installs.push(await render(command));
  });

  it('what the page installs is valid, in the oldest and the newest Kubernetes', () => {
    const kinds = installs.map((documents) =>
      documents
        .map(({ kind }) => kind)
        .sort()
        .join(' '),
    );
    const all = 'Deployment Job NetworkPolicy PodDisruptionBudget Service Service';
    expect(kinds).toEqual([
      all,
      `${all} HorizontalPodAutoscaler PrometheusRule ServiceMonitor`.split(' ').sort().join(' '),
    ]);
    const oldest = /(\d+\.\d+)/.exec(parse(chart('Chart.yaml')).kubeVersion)![1]!;
    for (const documents of installs)
      for (const args of [[], ['--kubernetes-version', oldest]])
        expect(invalid(documents.filter(isStandard), ...args)).toEqual([]);
  });

  it('the Secret of the page has each key that the pods of its first command name; the migration alone gets the URL of the owner', () => {
    const created = [...text('docs/how-to/run-on-kubernetes.md').matchAll(/--from-literal=(\w+)=/g)].map(
      ([, key]) => key,
    );
    const keysOf = (kind: string): readonly string[] =>
      find(installs[0]!, kind).spec.template.spec.volumes[0].projected.sources.flatMap(
        ({ secret }: Resource) => secret.items.map(({ key }: Resource) => key),
      );
    expect(keysOf('Job').toSorted()).toEqual(created.toSorted());
    expect(keysOf('Deployment').toSorted()).toEqual(['ADMIN_TOKEN', 'DATABASE_URL']);
  });

  it.each<[string, (deployment: Resource) => void, RegExp]>([
    [
      'a text for a number',
      (one) => (one.spec.replicas = 'two'),
      /spec\.replicas: 'two' is not of type 'integer'/,
    ],
    [
      'a misspelt field that is required',
      ({ spec }) => {
        const [port] = spec.template.spec.containers[0].ports;
        port.containerport = port.containerPort;
        delete port.containerPort;
      },
      /containers\.0\.ports\.0: 'containerPort' is a required property/,
    ],
    [
      'another misspelt field',
      ({ spec }) => {
        spec.template.spec.containers[0].readinessprobe = {};
      },
      /containers\.0: Additional properties are not allowed \('readinessprobe' was unexpected\)/,
    ],
    [
      'another API version',
      (one) => (one.apiVersion = 'apps/v1beta1'),
      /Couldn't find schema for kind Deployment with api version apps\/v1beta1/,
    ],
  ])('a mistake is refused: %s', (_mistake, make, said) => {
    const deployment = structuredClone(find(installs[0]!, 'Deployment'));
    expect(invalid([deployment])).toEqual([]);
    make(deployment);
    expect(invalid([deployment])).toEqual([expect.stringMatching(said)]);
  });

  it.each([
    ['replicas=two', /'\/replicas': got string, want integer/],
    ['env.STRATEGI=lua', /invalid propertyName 'STRATEGI'/],
    ['secrets.DATABASE_URL=null', /secrets\.DATABASE_URL is required/],
    ['env.AUTH=jwt', /secrets\.TICKET_SECRETS is required with AUTH=jwt/],
    ['env.AUTH=', /env\.AUTH is required/],
    ['image.repository=', /image\.repository is required/],
  ])('helm refuses --set %s', async (set, said) => {
    const [command] = commandsOf(text('docs/how-to/run-on-kubernetes.md'));
    await expect(render(`${command!.trimEnd()} --set ${set}`)).rejects.toThrow(said);
  });

  it('helm lint finds nothing, with each of the example values', () => {
    for (const values of ['values', 'examples/cloudnative-pg', 'examples/managed-redis']) {
      const args = [
        'lint',
        '--strict',
        '--values',
        `${root}ops/helm/stampede/${values}.yaml`,
        'ops/helm/stampede',
      ];
      const { status, stdout, stderr } = spawnSync('helm', args, { cwd: root, encoding: 'utf8' });
      expect(status, stdout + stderr).toBe(0);
    }
  });

  it('parts name each other: selectors, ports, probes, and the alerts of ops/prometheus', () => {
    const documents = installs[1]!;
    const { spec } = find(documents, 'Deployment');
    const { labels } = spec.template.metadata;
    const [{ ports, startupProbe, livenessProbe, readinessProbe }] = spec.template.spec.containers;
    const names = ports.map(({ name }: Resource) => name);
    const services = documents.filter(({ kind }) => kind === 'Service');
    for (const { selector, ports: of } of services.map((one) => one.spec)) {
      expect(labels).toMatchObject(selector);
      expect(names).toContain(of[0].targetPort);
    }
    for (const selector of [
      spec.selector,
      find(documents, 'PodDisruptionBudget').spec.selector,
      find(documents, 'NetworkPolicy').spec.podSelector,
    ])
      expect(labels).toMatchObject(selector.matchLabels);
    expect(find(documents, 'Job').spec.template.metadata.labels).not.toMatchObject(spec.selector.matchLabels);
    const { ingress } = find(documents, 'NetworkPolicy').spec;
    expect(ingress.map((one: Resource) => one.ports[0].port)).toEqual(names);
    expect([startupProbe, livenessProbe, readinessProbe].map(({ httpGet }) => httpGet)).toEqual([
      { path: '/healthz', port: 'admin' },
      { path: '/healthz', port: 'admin' },
      { path: '/readyz', port: 'admin' },
    ]);
    expect(spec.replicas).toBeUndefined(); // the autoscaler decides
    expect(find(documents, 'HorizontalPodAutoscaler').spec.scaleTargetRef.name).toBe(
      find(documents, 'Deployment').metadata.name,
    );
    const monitor = find(documents, 'ServiceMonitor').spec;
    const scraped = services.filter(({ metadata }) =>
      Object.entries(monitor.selector.matchLabels).every(([name, value]) => metadata.labels[name] === value),
    );
    expect(scraped.map((one) => one.spec.ports[0].name)).toEqual([monitor.endpoints[0].port]);
    const alerts = text('ops/prometheus/alerts.yml');
    const own = `namespace="default", service="${scraped[0].metadata.name}"`;
    const rules = JSON.stringify(find(documents, 'PrometheusRule').spec).replaceAll('\\"', '"');
    const selectors = [...rules.matchAll(/\b(up|stampede_\w+)\b({.*?})?/g)].map(([, , labels]) => labels);
    expect(selectors.length).toBeGreaterThan(20);
    expect(selectors.filter((labels) => !labels?.includes(own))).toEqual([]);
    const [relabeling] = monitor.endpoints[0].relabelings;
    expect(alerts).toContain(`${relabeling.targetLabel}="${relabeling.replacement}"`);
  });

  it.skipIf(spawnSync('promtool', ['--version']).error !== undefined)(
    'another release hides no alert of this one',
    async () => {
      const folder = await temporaryFolder('stampede-test-rules-');
      onTestFinished(() => rm(folder, { recursive: true }));
      const { spec, metadata } = find(installs[1]!, 'PrometheusRule');
      writeFileSync(path.join(folder, 'alerts.yml'), stringify(spec));
      const series = (namespace: string) =>
        `up{job="stampede", namespace="${namespace}", service="${metadata.name}-admin"}`;
      const tested = (up: number, alerts: object[]) => ({
        interval: '1m',
        input_series: [
          { series: series('staging'), values: '1x20' },
          { series: series('default'), values: `${up}x20` },
        ],
        alert_rule_test: [{ eval_time: '10m', alertname: 'StampedeDown', exp_alerts: alerts }],
      });
      const labels = { namespace: 'default', service: `${metadata.name}-admin`, severity: 'critical' };
      const { annotations } = parse(text('ops/prometheus/alerts.yml')).groups[0].rules[0];
      const fires = { exp_labels: labels, exp_annotations: annotations };
      const file = path.join(folder, 'test.yml');
      writeFileSync(
        file,
        stringify({ rule_files: ['alerts.yml'], tests: [tested(0, [fires]), tested(1, [])] }),
      );
      const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', file], { encoding: 'utf8' });
      expect(status, stdout + stderr).toBe(0);
    },
  );

  it('listens where the values say, and keeps the addresses of clients', async () => {
    const { spec } = find(installs[0]!, 'Deployment').spec.template;
    expect(envOf(spec)).toMatchObject({ HOST: '0.0.0.0' });
    const [command] = commandsOf(text('docs/how-to/run-on-kubernetes.md'));
    const service = '--set service.type=LoadBalancer --set service.externalTrafficPolicy=Local';
    const documents = await render(`${command!.trimEnd()} --set host=:: ${service}`);
    expect(invalid(documents.filter(isStandard))).toEqual([]);
    expect(envOf(find(documents, 'Deployment').spec.template.spec).HOST).toBe('::');
    expect(find(documents, 'Service').spec.externalTrafficPolicy).toBe('Local');
  });

  it('pods are as restricted as the service of docker-compose.yml, and have time to stop', () => {
    const [, uid] = /^USER (\d+)/m.exec(text('Dockerfile'))!;
    for (const kind of ['Deployment', 'Job']) {
      const { spec } = find(installs[1]!, kind).spec.template;
      expect(spec.automountServiceAccountToken).toBe(false);
      expect(spec.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: Number(uid) });
      expect(spec.containers[0].securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      });
    }
    const { spec } = find(installs[1]!, 'Deployment').spec.template;
    const delayMs = Number(envOf(spec).SHUTDOWN_DELAY_MS);
    expect(spec.terminationGracePeriodSeconds * 1_000).toBe(delayMs + limits.shutdownMs + 10_000);
  });

  const stores = opened(openTestStores);

  it("the job migrates, then the pods' service starts and sells", async () => {
    const folder = await temporaryFolder('stampede-test-pod-');
    const { url: owner, close } = await openDatabase('');
    onTestFinished(async () => {
      await close();
      await rm(folder, { recursive: true });
    });
    /** What the Secrets have. */
    const secrets: Readonly<Record<string, string>> = {
      DATABASE_URL: serviceUrlOf(owner),
      MIGRATION_DATABASE_URL: owner,
      REDIS_URL: stores.redisUrl,
      ADMIN_TOKEN: '0123456789abcdef',
      'ca.crt': '',
    };
    /** The variables of a pod, with its files in a folder of this test, and ports and addresses of this machine. */
    const podOf = (kind: string) => {
      const { spec } = find(installs[1]!, kind).spec.template;
      const mounted = path.join(folder, kind);
      mkdirSync(mounted);
      for (const { secret } of spec.volumes[0].projected.sources)
        for (const { path: file } of secret.items) writeFileSync(path.join(mounted, file), secrets[file]!);
      const { mountPath } = spec.containers[0].volumeMounts[0];
      const env = Object.entries(envOf(spec)).map(([name, value]) => [
        name,
        value.replace(mountPath, mounted),
      ]);
      return { ...Object.fromEntries(env), HOST: '127.0.0.1', SHUTDOWN_DELAY_MS: '0' } as Record<
        string,
        string
      >;
    };
    const [job, pod] = [podOf('Job'), podOf('Deployment')];
    expect(parseEnv(job, choices).migrationDatabaseUrl).toBe(owner);
    expect(parseEnv(pod, choices)).toMatchObject({
      migrationDatabaseUrl: null,
      migrate: 'never',
      adminPort: 3100,
    });
    expect(await runCommand('migrate', job)).toMatchObject({
      code: 0,
      out: expect.stringContaining('Applied'),
    });
    await using service = await spawnService({ ...pod, ADMIN_PORT: '0' });
    const adminUrl = `http://127.0.0.1:${/"adminPort":(\d+)/.exec(service.log.join('\n'))![1]}`;
    const sale = { name: 'one', stock: 1, priceCents: 1 };
    const { body } = await post(`${adminUrl}/sales`, sale, secrets.ADMIN_TOKEN);
    expect(await buy(service.url, Number(body.id), 'ann')).toMatchObject({ status: 201 });
    expect((await call(`${service.url}/metrics`)).status).toBe(404);
    expect((await call(`${adminUrl}/metrics`)).status).toBe(200);
    expect(await service.stop()).toBe(0);
  });
});

/** The variables of a pod's container. */
const envOf = ({ containers }: Resource): Readonly<Record<string, string>> =>
  Object.fromEntries(containers[0].env.map(({ name, value }: Resource) => [name, value]));
