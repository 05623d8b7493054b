import type { Attributes, SpanKind } from '@opentelemetry/api';

/** A step of a trace: a request, a call of the database, or a job. */
export interface TraceSpan {
  /** Names this span as the parent of the next step, also in another process: a W3C `traceparent`. */
  traceparent: string;
  rename(name: string): void;
  set(attributes: Attributes): void;
  /** @param error  a code, not a message, which could quote personal data */
  end(error?: string): void;
}

/** Sends spans to a collector. */
export interface Tracing {
  start(name: string, kind: keyof typeof SpanKind, parent: string | undefined, attributes?: Attributes): TraceSpan;
  /** Sends what is left. */
  close(): Promise<void>;
}

export interface TracingOptions {
  /** Receives OTLP over HTTP. */
  url: string;
  serviceName: string;
  sampler: (typeof samplers)[number];
  /** The share of traces, for the samplers with a ratio. */
  ratio: number;
}

/** The values of OTEL_TRACES_SAMPLER. */
export const samplers = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;

/** Later versions may add fields at the end. */
const pattern = /^(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(?:$|(?<!^00.*)-)/;

/** Parses a `traceparent`. @returns it in version 00; undefined if it is invalid, so that a new trace begins */
export function validTraceparent(header: unknown): string | undefined {
  const [, traceId, spanId, flags] = typeof header === 'string' ? (pattern.exec(header) ?? []) : [];
  return traceId && spanId && flags ? `00-${traceId}-${spanId}-${flags}` : undefined;
}

/** The id of the trace of a valid `traceparent`, for the log. */
export const traceIdOf = (traceparent: string | undefined) => traceparent?.slice(3, 35);

/** Starts to send spans. The libraries are loaded here, so that a process without tracing does not pay for them. */
export async function openTracing({ url, serviceName, sampler, ratio }: TracingOptions): Promise<Tracing> {
  const [api, sdk, { OTLPTraceExporter }, resources] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-trace'),
    import('@opentelemetry/exporter-trace-otlp-http'),
    import('@opentelemetry/resources'),
  ]);
  const root = sampler.endsWith('always_off')
    ? new sdk.AlwaysOffSampler()
    : sampler.endsWith('always_on')
      ? new sdk.AlwaysOnSampler()
      : new sdk.TraceIdRatioBasedSampler(ratio);
  const provider = new sdk.TracerProvider({
    sampler: sampler.startsWith('parentbased') ? new sdk.ParentBasedSampler({ root }) : root,
    resource: resources
      .detectResources({ detectors: [resources.resourceAttributesEnvDetector] })
      .merge(resources.resourceFromAttributes({ 'service.name': serviceName })),
    spanProcessors: [new sdk.BatchSpanProcessor({ exporter: new OTLPTraceExporter({ url }) })],
  });
  const tracer = provider.getTracer('school-management-service');
  const contextOf = (traceparent: string | undefined) => {
    if (traceparent === undefined) return api.ROOT_CONTEXT;
    const [, traceId = '', spanId = '', flags = ''] = traceparent.split('-');
    return api.trace.setSpanContext(api.ROOT_CONTEXT, {
      traceId,
      spanId,
      traceFlags: parseInt(flags, 16) & api.TraceFlags.SAMPLED,
      isRemote: true,
    });
  };
  return {
    start(name, kind, parent, attributes = {}) {
      const span = tracer.startSpan(name, { kind: api.SpanKind[kind], attributes }, contextOf(parent));
      const { traceId, spanId, traceFlags } = span.spanContext();
      return {
        traceparent: `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`,
        rename: (newName) => void span.updateName(newName),
        set: (more) => void span.setAttributes(more),
        end(error) {
          if (error !== undefined) span.setStatus({ code: api.SpanStatusCode.ERROR }).setAttribute('error.type', error);
          span.end();
        },
      };
    },
    close: () => provider.shutdown().catch(() => undefined),
  };
}
