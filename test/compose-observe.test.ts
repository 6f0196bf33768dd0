/** The profile observe of docker-compose.yml: Prometheus and Grafana, with files of this repository. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';

const text = (file: string) => readFileSync(new URL(`../${file}`, import.meta.url), 'utf8');

interface Service {
  readonly build?: unknown;
  readonly profiles?: readonly string[];
  readonly environment: Record<string, string>;
  readonly configs?: readonly { readonly source: string; readonly target: string }[];
  readonly ports?: readonly string[];
}
const { services, configs } = parse(text('docker-compose.yml'), { merge: true, maxAliasCount: -1 }) as {
  readonly services: Record<string, Service>;
  readonly configs: Record<string, { readonly file?: string }>;
};
const stampedes = Object.keys(services).filter((name) => 'build' in services[name]!);

describe('the profile observe', () => {
  const { 'observe-prometheus': prometheus, 'observe-grafana': grafana } = services;
  /** The file of the repository that a service has at a path. */
  const fileAt = (service: Service, path: string) =>
    configs[service.configs!.find(({ target }) => target === path)!.source]!.file!;
  const yamlAt = (service: Service, path: string) => parse(text(fileAt(service, path)));

  it('scrapes every service that runs Stampede, and has the alerts', () => {
    const config = yamlAt(prometheus!, '/etc/prometheus/prometheus.yml');
    const [{ dns_sd_configs: found, job_name: job }] = config.scrape_configs;
    expect(job).toBe('stampede');
    expect(found).toMatchObject([{ names: stampedes, port: 3000 }]);
    const [rules] = config.rule_files;
    expect(fileAt(prometheus!, `/etc/prometheus/${rules}`)).toBe('ops/prometheus/alerts.yml');
  });

  it('shows the dashboard of the repository, read-only', () => {
    const [source] = yamlAt(grafana!, '/etc/grafana/provisioning/datasources/prometheus.yml').datasources;
    const [provider] = yamlAt(grafana!, '/etc/grafana/provisioning/dashboards/stampede.yml').providers;
    const { GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH: path, ...settings } = grafana!.environment;
    expect(path).toMatch(new RegExp(`^${provider.options.path}/`));
    expect(fileAt(grafana!, path!)).toBe('ops/grafana/stampede.json');
    const uids = [...text('ops/grafana/stampede.json').matchAll(/"prometheus", "uid": "([^"]*)"/g)];
    expect(uids.length).toBeGreaterThan(20);
    expect(new Set(uids.map(([, uid]) => uid))).toEqual(new Set([source.uid]));
    expect(new URL(source.url).hostname).toBe('observe-prometheus');
    expect([source.editable, provider.allowUiUpdates]).toEqual([false, false]);
    expect(settings).toMatchObject({
      GF_AUTH_ANONYMOUS_ORG_ROLE: 'Viewer',
      GF_AUTH_BASIC_ENABLED: 'false',
      GF_AUTH_DISABLE_LOGIN_FORM: 'true',
    });
  });
});
