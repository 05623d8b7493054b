-- The built-in questions of analysts: those of docs/analytics.md. They have no owner, and relative dates as variables.
with question (built_in, name, description, query, variables) as (
  values
    (
      'students_by_grade',
      'How many students of which gender are in each grade?',
      'Students on the last day of this month, or today.',
      $query$query students($month: Date!) {
  enrollments(filter: { month: { equalTo: $month } }) {
    groupedAggregates(groupBy: [GRADE, GENDER]) { keys sum { students } }
  }
}
$query$,
      '{"month": "@month"}'
    ),
    (
      'attendance_by_month',
      'What share of students attended, by school and month?',
      'Divide present + late by marked.',
      $query${
  tenants(orderBy: [NAME_ASC]) {
    nodes {
      name
      attendanceMonths {
        groupedAggregates(groupBy: [MONTH]) { keys sum { present late marked } }
      }
    }
  }
}
$query$,
      '{}'
    ),
    (
      'outstanding_fees',
      'Which fees are outstanding, by component?',
      null,
      $query${
  feeMonths {
    groupedAggregates(groupBy: [COMPONENT, CURRENCY]) { keys sum { billed collected outstanding } }
  }
}
$query$,
      '{}'
    ),
    (
      'plans',
      'Which plan earns the most?',
      null,
      $query${
  tenants(filter: { status: { equalTo: "active" } }) {
    groupedAggregates(groupBy: [PLAN]) { keys distinctCount { tenantId } sum { priceMonthly studentCount } }
  }
}
$query$,
      '{}'
    ),
    (
      'teacher_loads',
      'How many periods do teachers teach?',
      null,
      $query${
  teacherLoads(filter: { academicYear: { isCurrent: { equalTo: true } } }) {
    groupedAggregates(groupBy: [BAND]) { keys sum { teachers periods } }
  }
}
$query$,
      '{}'
    ),
    (
      'full_buses',
      'Which buses are nearly full?',
      null,
      $query${
  transportRoutes(
    filter: { isActive: { equalTo: true }, occupancy: { greaterThanOrEqualTo: "0.9" } }
    orderBy: [OCCUPANCY_DESC, TENANT_ID_ASC]
  ) {
    nodes { tenant { name } routeId seats ridersPickup ridersDrop occupancy }
  }
}
$query$,
      '{}'
    ),
    (
      'messages',
      'How many messages go out, by month and channel?',
      null,
      $query${
  notificationDays {
    groupedAggregates(groupBy: [DATE_TRUNCATED_TO_MONTH, CHANNEL]) { keys sum { messages sent failed } }
  }
}
$query$,
      '{}'
    ),
    (
      'failed_jobs',
      'Which schools have failed jobs?',
      null,
      $query${
  jobs(filter: { failed: { greaterThan: "0" } }, orderBy: [FAILED_DESC]) {
    nodes { task tenant { name } failed }
  }
}
$query$,
      '{}'
    ),
    (
      'signups',
      'How many schools signed up, by quarter?',
      null,
      $query${
  tenants {
    groupedAggregates(groupBy: [SIGNED_UP_ON_TRUNCATED_TO_QUARTER]) {
      keys distinctCount { tenantId } sum { priceMonthly }
    }
  }
}
$query$,
      '{}'
    ),
    (
      'falling_attendance',
      'Where has attendance fallen since last month?',
      'Schools with classes below 90 % this month, with the totals of this month and the last.',
      $query$query fallen($last: Date!, $this: Date!) {
  tenants(
    filter: { attendanceMonths: { some: { month: { equalTo: $this }, attendanceRate: { lessThan: "0.9" } } } }
    orderBy: [NAME_ASC]
  ) {
    nodes {
      name
      before: attendanceMonths(filter: { month: { equalTo: $last } }) {
        aggregates { sum { present late marked } }
      }
      now: attendanceMonths(filter: { month: { equalTo: $this } }) {
        aggregates { sum { present late marked } }
      }
    }
  }
}
$query$,
      '{"last": "@month-1", "this": "@month"}'
    )
), saved as (
  insert into platform.saved_question as q (built_in, name, description, query, variables)
    select built_in, name, description, query, variables::jsonb from question
    on conflict (built_in) do update set
      name = excluded.name, description = excluded.description, query = excluded.query, variables = excluded.variables
    where (q.name, q.description, q.query, q.variables)
      is distinct from (excluded.name, excluded.description, excluded.query, excluded.variables)
)
delete from platform.saved_question where built_in not in (select built_in from question);
