/** ops/systemd/stampede.service, as systemd reads it. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { temporaryFolder } from '../lab/kit/temporary-folder.ts';
import { variableNames } from '../src/config/env.ts';
import { limits } from '../src/config/limits.ts';
import { fileVariables } from '../src/config/value-files.ts';
import { text } from './support/samples.ts';

const unit = text('ops/systemd/stampede.service');
const valuesOf = (name: string) =>
  [...unit.matchAll(new RegExp(`^${name}=(.*)$`, 'gm'))].map(([, value]) => value!);
const hasSystemd = spawnSync('systemd-analyze', ['--version']).error === undefined;

it.skipIf(!hasSystemd)('systemd accepts the unit, which starts what the image starts', async () => {
  const [, command] = /^CMD (\[.*\])$/m.exec(text('Dockerfile'))!;
  expect(valuesOf('ExecStart')).toEqual([`/usr/bin/${JSON.parse(command!).join(' ')}`]);
  const folder = await temporaryFolder('stampede-test-systemd-');
  onTestFinished(() => rm(folder, { recursive: true }));
  /** @returns what systemd dislikes; it looks for the program, too */
  const verify = (content: string): string => {
    const file = path.join(folder, 'stampede.service');
    writeFileSync(file, content.replace('/usr/bin/node', process.execPath));
    const { stdout, stderr } = spawnSync('systemd-analyze', ['verify', file], { encoding: 'utf8' });
    return stdout + stderr;
  };
  expect(verify(unit)).toBe('');
  expect(verify(unit.replace('ProtectHome=', 'ProtectHouse='))).toContain("Unknown key 'ProtectHouse'");
});

it('the unit is as restricted as the service of docker-compose.yml, has time to stop, and names its secrets', () => {
  const restricted = {
    ProtectSystem: 'strict',
    CapabilityBoundingSet: '',
    NoNewPrivileges: 'yes',
    DynamicUser: 'yes',
  };
  for (const [name, value] of Object.entries(restricted)) expect(valuesOf(name), name).toEqual([value]);
  expect(Number(valuesOf('TimeoutStopSec')[0]) * 1_000).toBeGreaterThanOrEqual(limits.shutdownMs + 10_000);
  const secrets = valuesOf('LoadCredential').map((one) => one.split(':')[0]!);
  expect(fileVariables(variableNames)).toEqual(expect.arrayContaining(secrets.map((name) => `${name}_FILE`)));
  expect(valuesOf('Environment').join(' ')).toContain(
    secrets.map((name) => `${name}_FILE=%d/${name}`).join(' '),
  );
});
