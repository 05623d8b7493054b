import { isIP } from 'node:net';

/**
 * Why messages may not be sent to a URL, as a message that begins with "must"; undefined if they may.
 * @param privateOrigins  origins that the operator of the service allows although they are private or use http
 */
export function webhookUrlFault(address: string, privateOrigins: readonly string[]): string | undefined {
  const url = URL.parse(address);
  if (!url) return 'must be a URL';
  if (url.username !== '' || url.password !== '') return 'must not contain a user name or a password';
  if (url.hash !== '') return 'must not contain a fragment';
  if (privateOrigins.includes(url.origin)) return undefined;
  if (url.protocol !== 'https:') return 'must begin with https://';
  if (isIP(url.hostname.replace(/^\[|\]$/g, '')) !== 0) return 'must name a host, not an IP address';
  return undefined;
}

/** Whether the operator of the service has allowed the origin of a URL, which may then be in a private network. */
export const isPrivateOrigin = (address: string, privateOrigins: readonly string[]): boolean =>
  privateOrigins.includes(URL.parse(address)?.origin ?? '');
