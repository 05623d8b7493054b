import { classify } from '../database/errors.ts';
import { ApiError } from '../domain/errors.ts';

/** The limit that a body was larger than. */
const sizeOf = (error: object) =>
  'limit' in error && typeof error.limit === 'number' && error.limit < 1_000_000
    ? `${String(error.limit / 1024)} kB`
    : '1 MB';

/** The errors that express and its body parsers throw. */
function fromExpress(error: unknown): unknown {
  if (!(error instanceof Error) || !('status' in error) || error instanceof ApiError) return error;
  const type = 'type' in error ? error.type : undefined;
  if (type === 'entity.parse.failed') return new ApiError('malformed_json', 'The body is not JSON.');
  if (type === 'entity.too.large')
    return new ApiError('payload_too_large', `The body may have ${sizeOf(error)} at most.`);
  if (error.status === 415)
    return new ApiError(
      'unsupported_media_type',
      'The body has a charset or encoding that is not supported. Send UTF-8.',
    );
  if (type === 'entity.not.utf8')
    return new ApiError('malformed_json', 'The body is not valid UTF-8, as JSON has to be.');
  if (typeof error.status === 'number' && error.status < 500)
    return new ApiError('validation_error', 'The request cannot be read.', { cause: error });
  return error;
}

/** Turns any thrown value into the error to answer. */
export function toApiError(error: unknown): ApiError {
  const thrown = fromExpress(error);
  if (thrown instanceof ApiError) return thrown;
  return (
    classify(thrown).apiError ?? new ApiError('internal_error', 'Something went wrong on our side.', { cause: thrown })
  );
}
