import { type ErrorName, errors } from '../../domain/errors.ts';
import { answersJson, type Endpoint } from '../endpoint.ts';
import { isAnonymous, type Operation, takesApiKey } from '../operation.ts';

/** All errors of a calendar feed. Its handler answers 404 to every invalid token and does not say why. */
const feedErrors: ErrorName[] = [
  'unavailable',
  'rate_limited',
  'not_acceptable',
  'not_found',
  'validation_error',
  'internal_error',
];

/**
 * The errors that an endpoint can answer: those that the operation declares (`core.operation.errors`), and those that
 * follow from the route and from the other columns of `core.operation`.
 */
export function endpointErrors(endpoint: Endpoint, operation: Operation, path: string, method: string): ErrorName[] {
  const { access } = operation;
  const anonymous = isAnonymous(operation);
  const isForSchools = access === 'tenant' || anonymous || access === 'any';
  const derived: Partial<Record<ErrorName, boolean>> = {
    validation_error: true,
    malformed_json: method !== 'GET',
    unauthenticated: !anonymous || access === 'refresh',
    invalid_token: access !== 'picture',
    forbidden:
      access === 'platform' ||
      access === 'analyst' ||
      access === 'tenant' ||
      (access === 'any' && !takesApiKey(operation)),
    tenant_suspended: isForSchools && access !== 'picture',
    tenant_mismatch: isForSchools,
    tenant_not_found: access === 'public',
    feature_disabled: operation.feature !== null,
    subscription_inactive:
      operation.needs_subscription || (access === 'tenant' && operation.writes && !operation.works_when_cancelled),
    setup_incomplete: operation.needs_setup,
    not_found: path.includes(':'),
    idempotency_key_reused: operation.idempotent,
    precondition_failed: operation.writes,
    not_acceptable: answersJson(endpoint),
    request_timeout: method !== 'GET',
    payload_too_large: method !== 'GET',
    unsupported_media_type: method !== 'GET',
    range_not_satisfiable: operation.content === 'gives',
    rate_limited: true,
    internal_error: true,
    unavailable: true,
  };
  const names = (Object.keys(errors) as ErrorName[]).filter(
    (name) => derived[name] === true || operation.errors.includes(name),
  );
  return access === 'feed' ? names.filter((name) => feedErrors.includes(name)) : names;
}

/** Whether a write changes something with a version, which `If-Match` can name. To others, only `*` matches. */
export const honorsIfMatch = (endpoint: Endpoint, { writes, record, versioned_by: versionedBy }: Operation) =>
  writes && (record ?? versionedBy) !== null && endpoint.response.kind !== 'created';
