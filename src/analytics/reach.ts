/** The schools that an analyst may see, as row policies read them: all, `,1,2,`, or nothing that matches. */
export type Reach = 'all' | '' | `,${string},`;

/** @param tenantIds  null for all */
export const reachOf = (tenantIds: readonly number[] | null): Reach =>
  tenantIds === null ? 'all' : tenantIds.length === 0 ? '' : `,${[...tenantIds].sort((a, b) => a - b).join()},`;
