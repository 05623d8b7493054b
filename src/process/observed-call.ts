import type { Logger } from 'pino';
import type { Call } from '../database/call.ts';
import { traceIdOf, type Tracing } from '../domain/tracing.ts';

/** A call of the database that has ended. */
interface ObservedCall {
  operation: string;
  ms: number;
  /** The SQLSTATE or the name of the error; undefined if the call succeeded. */
  failure: string | undefined;
  /** The id of the school; undefined for calls of operators, and before a login. */
  school: number | undefined;
}

interface Observers {
  observe: (call: ObservedCall) => void;
  tracing: Tracing | undefined;
  logger: Logger;
  /** Calls that take longer are logged; 0 means none. */
  slowMs: number;
}

/** Reports each call of the database to the metrics and the trace, and slow ones to the log. */
export const observedCall =
  (call: Call, { observe, tracing, logger, slowMs }: Observers): Call =>
  async (operation, sessionId, params, context, content) => {
    const span = tracing?.start(`core.call ${operation}`, 'CLIENT', context.traceparent, {
      'db.system.name': 'postgresql',
      'db.operation.name': operation,
      ...(context.school === undefined ? {} : { 'school.id': context.school }),
    });
    const traceparent = span?.traceparent ?? context.traceparent;
    const start = performance.now();
    let failure: string | undefined;
    try {
      return await call(operation, sessionId, params, traceparent ? { ...context, traceparent } : context, content);
    } catch (error) {
      failure = (error as { code?: string }).code ?? (error instanceof Error ? error.name : 'unknown');
      throw error;
    } finally {
      const ms = performance.now() - start;
      observe({ operation, ms, failure, school: context.school });
      span?.end(failure);
      if (slowMs > 0 && ms >= slowMs)
        logger.warn({
          slow: operation,
          request_id: context.request_id,
          trace_id: traceIdOf(traceparent),
          tenant: context.school,
          code: failure,
          ms: Math.round(ms),
        });
    }
  };
