import { readFile } from 'node:fs/promises';

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
