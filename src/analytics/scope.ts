/** The schools that an analyst may see, in the format of the row policies: `all`, `,1,2,`, or empty for none. */
export type TenantScope = 'all' | '' | `,${string},`;

/** @param tenantIds  null for all schools */
export const tenantScope = (tenantIds: readonly number[] | null): TenantScope =>
  tenantIds === null ? 'all' : tenantIds.length === 0 ? '' : `,${[...tenantIds].sort((a, b) => a - b).join()},`;
