import type { Client } from './client.ts';

/** Reads every page of a list. @throws when the length of a page does not fit its pagination, or the total changes */
export async function walk<T extends { id: number }>(client: Client, path: string, pageSize: number): Promise<T[]> {
  const records: T[] = [];
  const url = `${path}${path.includes('?') ? '&' : '?'}pageSize=${pageSize}&page=`;
  for (let page = 1; ; page++) {
    const { data, pagination } = await client.get<T[]>(`${url}${page}`);
    records.push(...data);
    const remaining = Math.max(0, pagination.totalItems - (page - 1) * pageSize);
    if (
      data.length !== Math.min(pageSize, remaining) ||
      pagination.page !== page ||
      pagination.totalPages !== Math.ceil(pagination.totalItems / pageSize)
    ) {
      throw new Error(`${url}${page} has ${data.length} records and says ${JSON.stringify(pagination)}`);
    }
    if (page >= pagination.totalPages) return records;
  }
}

/** The identifiers of records, in their order. */
export const ids = (records: { id: number }[]) => records.map(({ id }) => id);

/** Text as lists compare it: lower case, without accents. */
export const plain = (text: string) => text.normalize('NFD').replace(/\p{M}/gu, '').toLowerCase();

/** Records in the order that a list must have: by key, nulls last in either direction, then by id. */
export function inOrder<T extends { id: number }>(
  records: T[],
  key: (record: T) => (string | number | null)[],
  order: 'asc' | 'desc',
): T[] {
  const sign = order === 'asc' ? 1 : -1;
  return [...records].sort((a, b) => {
    const [left, right] = [
      [...key(a), a.id],
      [...key(b), b.id],
    ];
    for (const [n, l] of left.entries()) {
      const r = right[n] ?? null;
      if (l === r) continue;
      if (l === null) return 1;
      if (r === null) return -1;
      return l < r ? -sign : sign;
    }
    return 0;
  });
}
