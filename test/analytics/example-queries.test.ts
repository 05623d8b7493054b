import { readFileSync, writeFileSync } from 'node:fs';
import { afterAll, describe, expect, test } from '@jest/globals';
import { analystOf, askGraphql, type Facts, disableRefresh, writeFacts } from '../support/fixtures/analysts.ts';
import { serviceOfFile } from '../support/server/service.ts';

/** Four schools in the autumn of 2026, for the responses in docs/analytics.md. */
const schools: { name: string; planId: number; signedUp: string; students: number; facts: Facts }[] = [
  {
    ...{ name: 'Ashgrove', planId: 1, signedUp: '2026-02-10', students: 40 },
    facts: {
      absent: () => 2,
      billed: 4000,
      paid: 90,
      bands: { '0': 1, '10-19': 4, '20-29': 2 },
      routes: [[30, 28]],
      messages: 60,
      failedJobs: 0,
    },
  },
  {
    ...{ name: 'Birch Hill', planId: 2, signedUp: '2026-05-04', students: 120 },
    facts: {
      absent: (_month, day) => day % 2,
      billed: 6000,
      paid: 75,
      bands: { '1-9': 2, '10-19': 6 },
      routes: [
        [45, 30],
        [20, 20],
      ],
      messages: 140,
      failedJobs: 1,
    },
  },
  {
    ...{ name: 'Cedar Park', planId: 2, signedUp: '2026-05-20', students: 80 },
    facts: {
      absent: (month) => (month === 11 ? 5 : 1),
      billed: 5000,
      paid: 40,
      bands: { '20-29': 5, '30+': 1 },
      routes: [[16, 9]],
      messages: 220,
      failedJobs: 3,
    },
  },
  {
    ...{ name: 'Dunmore', planId: 3, signedUp: '2026-08-30', students: 300 },
    facts: {
      absent: () => 1,
      billed: 12000,
      paid: 100,
      bands: { '10-19': 9, '20-29': 7 },
      routes: [],
      messages: 300,
      failedJobs: 0,
    },
  },
];

const service = await serviceOfFile({}, 4);
await disableRefresh(service);
const ids: number[] = [];
for (const { name, planId, signedUp, students, facts } of schools) {
  const { id } = await service.school({ name, plan_id: planId });
  await service.database.query('update platform.tenant set created_at = $2 where id = $1', [
    id,
    `${signedUp}T12:00:00Z`,
  ]);
  await service.database.query('update platform.tenant_usage set students = $2 where tenant_id = $1', [id, students]);
  await writeFacts(service, id, facts);
  ids.push(id);
}
const analyst = await analystOf(service, ids);

const file = new URL('../../docs/analytics.md', import.meta.url);
const text = readFileSync(file, 'utf8');
/** `WRITE_ANSWERS=true` updates the responses in the page, after a query or the schools have changed. */
const isWriting = process.env['WRITE_ANSWERS'] === 'true';
let written = text;

/** JSON with short lists and objects on one line. */
function formatJson(value: unknown, indent = ''): string {
  const line = JSON.stringify(value, null, 1).replace(/\n\s*/g, ' ').replace(/\[ /g, '[').replace(/ \]/g, ']');
  if (typeof value !== 'object' || value === null || line.length + indent.length < 130) return line;
  const deeper = `${indent}  `;
  if (Array.isArray(value))
    return `[\n${value.map((one) => `${deeper}${formatJson(one, deeper)}`).join(',\n')}\n${indent}]`;
  return `{\n${Object.entries(value)
    .map(([name, one]) => `${deeper}${JSON.stringify(name)}: ${formatJson(one, deeper)}`)
    .join(',\n')}\n${indent}}`;
}

interface Question {
  title: string;
  query: string;
  variables: string;
  answer: string;
}

const questions = [
  ...text.matchAll(
    /^### (?<title>.+\?)\n[^#]*?```graphql\n(?<query>[^`]*)```\n(?:\n```json variables\n(?<variables>[^`]*)```\n)?\n```json\n(?<answer>[^`]*)```/gm,
  ),
].map(({ groups }) => groups as unknown as Question);

describe('the example queries of docs/analytics.md', () => {
  test('there are ten', () => {
    expect(questions).toHaveLength(10);
  });

  test.each(questions)('$title', async ({ query, variables, answer }) => {
    const { data, errors } = await askGraphql<object>(service, analyst.token, query, {
      variables: variables ? (JSON.parse(variables) as object) : {},
    });
    expect(errors).toBeUndefined();
    if (isWriting)
      written = written.replace(
        `${query}\`\`\`${variables ? `\n\n\`\`\`json variables\n${variables}\`\`\`` : ''}\n\n\`\`\`json\n${answer}\`\`\``,
        (found) => found.replace(/```json\n[^`]*```$/, `\`\`\`json\n${formatJson(data)}\n\`\`\``),
      );
    else expect(data).toEqual(JSON.parse(answer));
  });
});

test('the examples are the built-in questions', async () => {
  const { data } = await analyst.get<{ name: string; query: string; is_built_in: boolean; owner: null }[]>(
    '/api/platform/questions?pageSize=100',
  );
  const byName = (a: { name: string }, b: { name: string }) => a.name.localeCompare(b.name);
  expect(data.map(({ name, query, is_built_in, owner }) => ({ name, query, is_built_in, owner })).sort(byName)).toEqual(
    questions.map(({ title, query }) => ({ name: title, query, is_built_in: true, owner: null })).sort(byName),
  );
});

afterAll(() => {
  if (isWriting) writeFileSync(file, written);
});
