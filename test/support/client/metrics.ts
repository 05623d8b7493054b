import { expect } from '@jest/globals';

/** One line of the metrics of a process. */
export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

/** Parses the Prometheus text format strictly. */
function parse(text: string): Sample[] {
  const typed = new Set<string>();
  return text.split('\n').flatMap((line) => {
    if (line === '' || line.startsWith('# HELP ')) return [];
    const [, type] = /^# TYPE (\w+) (?:counter|gauge|histogram|summary)$/.exec(line) ?? [];
    if (type) {
      if (typed.has(type)) throw new Error(`twice: ${type}`);
      typed.add(type);
      return [];
    }
    const [, name = '', labels = '', value = ''] =
      /^(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\})? (NaN|Nan|[+-]?(?:Inf|[\d.e+-]+))$/.exec(line) ?? [];
    if (!name || !(typed.has(name) || typed.has(name.replace(/_(bucket|sum|count)$/, ''))))
      throw new Error(`not a sample: ${line}`);
    return [
      {
        name,
        labels: Object.fromEntries(
          [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key = '', text = '']) => [key, text]),
        ),
        value: Number(value),
      },
    ];
  });
}

/** Reads the metrics at an address. */
export async function scrape(from: string): Promise<Sample[]> {
  const answer = await fetch(from);
  expect([answer.status, answer.headers.get('content-type')]).toEqual([
    200,
    'text/plain; version=0.0.4; charset=utf-8',
  ]);
  return parse(await answer.text());
}
/** The value of the first sample with this name and these labels. */
export const value = (samples: Sample[], name: string, labels: Record<string, string> = {}) =>
  samples.find(
    (sample) => sample.name === name && Object.entries(labels).every(([key, text]) => sample.labels[key] === text),
  )?.value;
