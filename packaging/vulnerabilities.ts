// Fails if a package that runs in production has a known vulnerability. Also lists those packages, as a bill of materials.
import { execFileSync, spawnSync } from 'node:child_process';

const audit = spawnSync('npm', ['audit', '--omit=dev', '--audit-level=high', '--json'], { encoding: 'utf8' });
if (!audit.stdout.includes('"auditReportVersion"'))
  process.stdout.write('The registry offers no audit of the dependencies.\n');
else if (audit.status !== 0) {
  process.stdout.write(audit.stdout);
  process.exitCode = 1;
}
const { bomFormat, components } = JSON.parse(
  execFileSync('npm', ['run', '--silent', 'sbom'], { encoding: 'utf8', maxBuffer: 1e8 }),
) as { bomFormat: string; components: unknown[] };
process.stdout.write(`${bomFormat}: ${String(components.length)} packages in production\n`);
