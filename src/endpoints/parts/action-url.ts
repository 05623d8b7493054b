import { ApiError } from '../../domain/errors.ts';
import type { Services } from '../../http/services.ts';
import { text } from '../../http/schemas.ts';

/** What a notification opens. `checkActionUrl` checks it, because the rules depend on the configuration. */
export const actionUrl = text(500).meta({
  description:
    'What the notification opens: a path of the app; or an https address of the school (its subdomain of ' +
    '`BASE_DOMAIN`), of the app (`APP_URL`), of the service, or of a host in `action_url_hosts` of the school info.',
  examples: ['/fees'],
});

function refuse(message: string): never {
  throw new ApiError('validation_error', `action_url: ${message}`, { details: [{ path: 'action_url', message }] });
}

const hostOf = (url: string | undefined) => (url === undefined ? undefined : new URL(url).hostname);

const isLocal = (host: string) => ['localhost', '127.0.0.1', '[::1]'].includes(host);

/**
 * Checks the form of `action_url`. The operation gets the host as `action_host` if only the school can allow it.
 * @throws ApiError validation_error for an address that is neither a path nor https
 */
export function checkActionUrl(
  params: Record<string, unknown>,
  { config: { APP_URL, BASE_DOMAIN, NODE_ENV, PUBLIC_URL } }: Pick<Services, 'config'>,
): Record<string, unknown> {
  const url = params['action_url'];
  if (typeof url !== 'string') return params;
  // Browsers remove tabs and line breaks and read a backslash as a slash, so `/\host` would be an address.
  if (/[\t\n\r\\]/.test(url)) refuse('must not contain tabs, line breaks or backslashes');
  const isAbsolute = /^[^/?#]*:/.test(url);
  if (!isAbsolute && !url.startsWith('//')) return params;
  const address = isAbsolute ? url : `https:${url}`;
  // Without the slashes, a browser and a mail program would read different hosts.
  if (!/^https?:\/\//i.test(address) || !URL.canParse(address)) refuse('must be a path of the app or an https address');
  const { protocol, hostname, username, password } = new URL(address);
  if (username !== '' || password !== '') refuse('must not contain a user name or password');
  const isDevelopment = NODE_ENV !== 'production' && isLocal(hostname);
  if (protocol !== 'https:' && !isDevelopment) refuse('must be a path of the app or an https address');
  if (isDevelopment || [APP_URL, PUBLIC_URL].map(hostOf).includes(hostname)) return params;
  return { ...params, action_host: hostname, ...(BASE_DOMAIN === undefined ? {} : { base_domain: BASE_DOMAIN }) };
}
