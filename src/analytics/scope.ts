/** The schools that an analyst may see, as row policies read them: all, `,1,2,`, or nothing that matches. */
export type TenantScope = 'all' | '' | `,${string},`;

/** @param tenantIds  null for all */
export const tenantScope = (tenantIds: readonly number[] | null): TenantScope =>
  tenantIds === null ? 'all' : tenantIds.length === 0 ? '' : `,${[...tenantIds].sort((a, b) => a - b).join()},`;
