import { readActionUrl } from '../../domain/action-url.ts';
import { ApiError } from '../../domain/errors.ts';
import type { Services } from '../../http/services.ts';
import { text } from '../../http/schemas.ts';

/** What a notification opens. `checkActionUrl` checks it, because the rules depend on the configuration. */
export const actionUrl = text(500).meta({
  description:
    'What the notification opens: a path of the app, an https address, or an address with the scheme of an app, such ' +
    'as `myapp://students/1`. Emails show a path below `APP_URL`; only https is a link there, and the host of an ' +
    'address that is neither the service nor the app nor in `action_url_hosts` of the school info stands beside it.',
  examples: ['/fees'],
});

function refuse(message: string): never {
  throw new ApiError('validation_error', `action_url: ${message}`, { details: [{ path: 'action_url', message }] });
}

const isLocal = (host: string) => ['localhost', '127.0.0.1', '[::1]'].includes(host);

/**
 * Schemes that a browser or an operating system acts on: they run a script, read a file, start a program or open a
 * connection. A single letter is the drive of a Windows path.
 */
const forbiddenScheme = new RegExp(
  `^(${[
    '[a-z]|ms-.*',
    'javascript|vbscript|livescript|data|blob|about|view-source|filesystem|file|intent|content|resource|jar|mhtml|res',
    'chrome|chrome-extension|moz-extension|edge|search|search-ms|shell|jnlps?|itms-services|feed|wyciwyg',
    'smb|cifs|nfs|afp|s?ftp|ssh|telnet|rdp|vnc|ldaps?|wss?|davs?|webdavs?|gopher',
  ].join('|')})$`,
);

/**
 * Checks the form of `action_url`.
 * @throws ApiError validation_error for an address that is not a path, https or that of an app
 */
export function checkActionUrl(
  params: Record<string, unknown>,
  { config: { NODE_ENV } }: Pick<Services, 'config'>,
): Record<string, unknown> {
  const url = params['action_url'];
  if (typeof url !== 'string') return params;
  // Browsers remove control characters, and read a backslash as a slash: `/\\host` would be an address.
  if (/[\u0000-\u001f\u007f\\]/.test(url)) refuse('must not contain control characters or backslashes');
  const target = readActionUrl(url);
  if (target.scheme === undefined) return params;
  const { scheme, address } = target;
  if (!/^[a-z][a-z0-9+.-]*$/.test(scheme) || forbiddenScheme.test(scheme))
    refuse(`must be a path, an https address or the address of an app, and not begin with ${scheme}:`);
  if (scheme !== 'https' && scheme !== 'http') return params;
  // Without the slashes, a browser and a mail program would read different hosts.
  if (!/^https?:\/\//i.test(address) || !URL.canParse(address)) refuse('is not a valid address');
  const { protocol, hostname, username, password } = new URL(address);
  if (!/^[\w.:[\]-]+$/.test(hostname)) refuse('is not a valid address');
  if (username !== '' || password !== '') refuse('must not contain a user name or password');
  if (protocol !== 'https:' && !(NODE_ENV !== 'production' && isLocal(hostname)))
    refuse('must be an https address, not http');
  return params;
}
