import { describe, expect, test } from '@jest/globals';
import { analystOf, askGraphql, disableRefresh, writeFacts } from '../support/fixtures/analysts.ts';
import { serviceOfFile } from '../support/server/service.ts';

const service = await serviceOfFile({}, 1);
const school = await service.school();
await disableRefresh(service);
await writeFacts(service, school.id, {
  absent: () => 2,
  billed: 1000,
  paid: 50,
  bands: { '10-19': 3 },
  routes: [],
  messages: 40,
  failedJobs: 0,
});
const analyst = await analystOf(service, null);
const ask = (query: string, variables: Record<string, unknown> = {}) =>
  askGraphql<Record<string, unknown> | null>(service, analyst.token, query, { variables });

/** What a query about stocks returns, or how it is refused. */
async function answer(query: string, variables?: Record<string, unknown>) {
  const { data, errors } = await ask(query, variables);
  return data ?? errors.map(({ extensions, message }) => ({ code: extensions.code, message }));
}
const refusal = [
  { code: 'SUM_OF_STOCK', message: expect.stringMatching(/Filter by one \w+ \(filter: .*\), or group by [A-Z_]+\.$/) },
];

test('girls are not counted again in each month', async () => {
  expect(
    await answer('{ enrollments(filter: { gender: { equalTo: "female" } }) { aggregates { sum { students } } } }'),
  ).toEqual([
    {
      code: 'SUM_OF_STOCK',
      message:
        'A sum of students over several values of month counts the same ones again. ' +
        'Filter by one month (filter: { month: { equalTo: … } }), or group by MONTH.',
    },
  ]);
  expect(
    await answer(
      '{ enrollments(filter: { gender: { equalTo: "female" }, month: { equalTo: "2026-11-01" } }) { aggregates { sum { students } } } }',
    ),
  ).toEqual({ enrollments: { aggregates: { sum: { students: '22' } } } });
});

describe('a sum of students over several months is refused', () => {
  test.each([
    ['in groups', '{ enrollments { groupedAggregates(groupBy: [GENDER]) { keys sum { students } } } }'],
    [
      'in groups of quarters',
      '{ enrollments { groupedAggregates(groupBy: [MONTH_TRUNCATED_TO_QUARTER]) { sum { students } } } }',
    ],
    ['under an alias', '{ enrollments { all: aggregates { total: sum { girls: students } } } }'],
    [
      'in a fragment',
      '{ enrollments { ...totals } } fragment totals on EnrollmentConnection { aggregates { ... { sum { students } } } }',
    ],
    ['of each school', '{ tenants { nodes { enrollments { aggregates { sum { students } } } } } }'],
    [
      'of a period',
      '{ enrollments(filter: { month: { greaterThan: "2026-09-01" } }) { aggregates { sum { students } } } }',
    ],
    [
      'of a list of months',
      '{ enrollments(filter: { month: { in: ["2026-09-01", "2026-10-01"] } }) { aggregates { sum { students } } } }',
    ],
    [
      'of one month or others',
      '{ enrollments(filter: { or: [{ month: { equalTo: "2026-09-01" } }, { gender: { equalTo: "female" } }] }) { aggregates { sum { students } } } }',
    ],
    [
      'of all months but one',
      '{ enrollments(filter: { not: { month: { equalTo: "2026-09-01" } } }) { aggregates { sum { students } } } }',
    ],
    [
      'in a condition on groups',
      '{ enrollments { groupedAggregates(groupBy: [GRADE], having: { sum: { students: { greaterThan: 5 } } }) { keys } } }',
    ],
    [
      'in a filter of schools',
      '{ tenants(filter: { enrollments: { aggregates: { sum: { students: { greaterThan: "5" } } } } }) { totalCount } }',
    ],
    ['in an order', '{ tenants(orderBy: [ENROLLMENTS_SUM_STUDENTS_DESC]) { totalCount } }'],
  ])('%s', async (_, query) => {
    expect(await answer(query)).toEqual(refusal);
  });

  test('also if the filter, the groups or the order are variables', async () => {
    expect(
      await answer(
        'query ($filter: EnrollmentFilter) { enrollments(filter: $filter) { aggregates { sum { students } } } }',
        { filter: { gender: { equalTo: 'female' } } },
      ),
    ).toEqual(refusal);
    expect(
      await answer(
        'query ($keys: [EnrollmentGroupBy!]!) { enrollments { groupedAggregates(groupBy: $keys) { sum { students } } } }',
        { keys: ['GENDER'] },
      ),
    ).toEqual(refusal);
    expect(
      await answer('query ($order: [TenantOrderBy!]) { tenants(orderBy: $order) { totalCount } }', {
        order: ['ENROLLMENTS_SUM_STUDENTS_ASC'],
      }),
    ).toEqual(refusal);
  });
});

describe('a sum of students is answered', () => {
  test('by month', async () => {
    expect(
      await answer('{ enrollments { groupedAggregates(groupBy: [MONTH]) { keys sum { students joiners } } } }'),
    ).toEqual({
      enrollments: {
        groupedAggregates: [
          { keys: ['2026-09-01'], sum: { students: '40', joiners: '40' } },
          { keys: ['2026-10-01'], sum: { students: '40', joiners: '0' } },
          { keys: ['2026-11-01'], sum: { students: '38', joiners: '0' } },
        ],
      },
    });
  });

  test('of one month, in variables, in `and`, or in a list of one', async () => {
    const query =
      'query ($filter: EnrollmentFilter) { enrollments(filter: $filter) { aggregates { sum { students } } } }';
    for (const filter of [
      { month: { equalTo: '2026-11-01' } },
      { month: { in: ['2026-11-01'] } },
      { and: [{ grade: { startsWith: 'Grade' } }, { month: { equalTo: '2026-11-01' } }] },
    ])
      expect(await answer(query, { filter })).toEqual({ enrollments: { aggregates: { sum: { students: '38' } } } });
  });

  test('of one month in a filter of schools', async () => {
    expect(
      await answer(
        `{ tenants(filter: { enrollments: { aggregates: {
             filter: { month: { equalTo: "2026-11-01" } }, sum: { students: { greaterThan: "30" } }
           } } }) { totalCount } }`,
      ),
    ).toEqual({ tenants: { totalCount: 1 } });
  });

  test('together with other sums of all months, which are flows', async () => {
    expect(
      await answer(
        '{ enrollments { aggregates { sum { joiners leavers } max { students } } } feeMonths { aggregates { sum { billed outstanding } } } }',
      ),
    ).toEqual({
      enrollments: { aggregates: { sum: { joiners: '40', leavers: '2' }, max: { students: 11 } } },
      feeMonths: { aggregates: { sum: { billed: '3300.00', outstanding: '1650.00' } } },
    });
  });
});

describe('teachers and places, which each academic year has', () => {
  test('are not added up over academic years', async () => {
    expect(await answer('{ teacherLoads { aggregates { sum { teachers } } } }')).toEqual([
      {
        code: 'SUM_OF_STOCK',
        message:
          'A sum of teachers over several values of academicYearId counts the same ones again. ' +
          'Filter by one academicYearId (filter: { academicYear: { isCurrent: { equalTo: true } } }), ' +
          'or group by ACADEMIC_YEAR_ID.',
      },
    ]);
    expect(
      await answer(
        '{ classes(filter: { academicYear: { isCurrent: { equalTo: false } } }) { aggregates { sum { capacity } } } }',
      ),
    ).toEqual(refusal);
  });

  test('are added up in the current year, a named year, or within each year', async () => {
    for (const academicYear of ['isCurrent: { equalTo: true }', 'name: { equalTo: "2026/27" }'])
      expect(
        await answer(
          `{ teacherLoads(filter: { academicYear: { ${academicYear} } }) { aggregates { sum { teachers } } } }`,
        ),
      ).toEqual({ teacherLoads: { aggregates: { sum: { teachers: '3' } } } });
    expect(
      await answer(
        '{ academicYears(orderBy: [CLASSES_SUM_CAPACITY_DESC]) { nodes { classes { aggregates { sum { capacity } } } } } }',
      ),
    ).toEqual({ academicYears: { nodes: [{ classes: { aggregates: { sum: { capacity: '48' } } } }] } });
  });
});
