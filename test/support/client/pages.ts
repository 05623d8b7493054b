import type { Client } from './client.ts';

/** Every record of a list, page by page; fails when a page is not as long as it says, or a total changes on the way. */
export async function walk<T extends { id: number }>(client: Client, path: string, pageSize: number): Promise<T[]> {
  const records: T[] = [];
  const url = `${path}${path.includes('?') ? '&' : '?'}pageSize=${pageSize}&page=`;
  for (let page = 1; ; page++) {
    const { data, pagination } = await client.get<T[]>(`${url}${page}`);
    records.push(...data);
    const rest = Math.max(0, pagination.totalItems - (page - 1) * pageSize);
    if (
      data.length !== Math.min(pageSize, rest) ||
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

/** Text as lists compare it: in lower case, without accents. */
export const plain = (text: string) => text.normalize('NFD').replace(/\p{M}/gu, '').toLowerCase();

/** Records in the order that a list should have: by key, without a key last, ties by id; descending turns all but the nulls. */
export function inOrder<T extends { id: number }>(
  records: T[],
  key: (record: T) => (string | number | null)[],
  order: 'asc' | 'desc',
): T[] {
  const turn = order === 'asc' ? 1 : -1;
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
      return l < r ? -turn : turn;
    }
    return 0;
  });
}
