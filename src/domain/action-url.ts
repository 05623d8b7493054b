/** What an `action_url` opens: a path of the app, an address of the web, or an address with the scheme of an app. */
export type ActionTarget = { scheme: undefined; path: string } | { scheme: string; address: string };

/** Reads an `action_url` as browsers do: the scheme ignores case, and `//host` is an address without its scheme. */
export function readActionUrl(actionUrl: string): ActionTarget {
  if (actionUrl.startsWith('//')) return { scheme: 'https', address: `https:${actionUrl}` };
  const scheme = /^([^/?#:]*):/.exec(actionUrl)?.[1]?.toLowerCase();
  return scheme === undefined ? { scheme, path: actionUrl } : { scheme, address: actionUrl };
}
