import { readFile } from 'node:fs/promises';
import { withOwner } from '../src/database/pool/pool.ts';

/** CPU time and memory of a process so far, from /proc. NaN if /proc does not exist. */
export async function usage(pid: number | undefined): Promise<{ cpuSeconds: number; memoryMb: number }> {
  const read = (name: string) => readFile(`/proc/${String(pid)}/${name}`, 'utf8').catch(() => '');
  // The second field is the program name and may contain spaces. User and system time are fields 14 and 15, in ticks of
  // 10 ms.
  const stat = (await read('stat')).split(') ').at(-1)?.split(' ') ?? [];
  const resident = /^VmRSS:\s+(\d+) kB/m.exec(await read('status'))?.[1];
  return { cpuSeconds: (Number(stat[11]) + Number(stat[12])) / 100, memoryMb: Number(resident ?? NaN) / 1024 };
}

/** Memory that a process has for itself, without the buffers that all backends share, in MB. NaN without /proc. */
export async function privateMemoryMb(pid: number): Promise<number> {
  const rollup = await readFile(`/proc/${String(pid)}/smaps_rollup`, 'utf8').catch(() => '');
  return Number(/^Pss_Anon:\s+(\d+) kB/m.exec(rollup)?.[1] ?? NaN) / 1024;
}

async function backendPids(databaseUrl: string, applicationName: string): Promise<number[]> {
  const { rows } = await withOwner(databaseUrl, (owner) =>
    owner.query<{ pid: number }>(
      'select pid from pg_stat_activity where datname = current_database() and application_name = $1',
      [applicationName],
    ),
  );
  return rows.map(({ pid }) => pid);
}

/** Private memory of the database connections of an application. */
export interface BackendMemory {
  count: number;
  sumMb: number;
  maxMb: number;
}

/** Measures the private memory of the database connections with an application name. */
export async function backendMemory(databaseUrl: string, applicationName: string): Promise<BackendMemory> {
  const pids = await backendPids(databaseUrl, applicationName);
  // A backend may have ended meanwhile.
  const memory = (await Promise.all(pids.map(privateMemoryMb))).filter((one) => !Number.isNaN(one));
  return { count: pids.length, sumMb: memory.reduce((sum, one) => sum + one, 0), maxMb: Math.max(0, ...memory) };
}

/** CPU time so far of processes, in seconds. Unlike throughput, it does not contain the work of the load generator. */
export type CpuSeconds = ReadonlyMap<number, number>;

/** Reads the CPU time of a server process, if one is given, and of the database connections of an application. */
export async function serverCpuSeconds(
  pid: number | undefined,
  databaseUrl: string,
  applicationName: string,
): Promise<CpuSeconds> {
  const pids = [...(pid === undefined ? [] : [pid]), ...(await backendPids(databaseUrl, applicationName))];
  return new Map(await Promise.all(pids.map(async (one) => [one, (await usage(one)).cpuSeconds] as const)));
}

/** The CPU time between two readings. NaN if a process has ended meanwhile, whose last work is unknown. */
export function cpuSecondsBetween(before: CpuSeconds, after: CpuSeconds): number {
  if ([...before.keys()].some((pid) => !after.has(pid))) return NaN;
  return [...after].reduce((sum, [pid, seconds]) => sum + seconds - (before.get(pid) ?? 0), 0);
}
