/** A JSON schema, as far as examples need it. */
export interface JsonSchema {
  $ref?: string;
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  format?: string;
  pattern?: string;
  examples?: unknown[];
  description?: string;
  readOnly?: boolean;
  minimum?: number;
  exclusiveMinimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  multipleOf?: number;
  default?: unknown;
  required?: string[];
  properties?: Record<string, JsonSchema>;
  items?: JsonSchema;
  additionalProperties?: JsonSchema | boolean;
  anyOf?: JsonSchema[];
  oneOf?: JsonSchema[];
  allOf?: JsonSchema[];
}

/**
 * Example values of text fields, in the style of the demo school. No test compares them with it. The key is the name of
 * the field. If the fields of a name have different meanings, the schema or the object around the field comes first:
 * `Subject.name`, `tenant.name`. Fields with a format, fixed values or examples of their own need no entry, and neither
 * do numbers and booleans: every tool can make those up.
 */
const exampleTexts: Record<string, string> = {
  '*': 'Amina',
  access_token: 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dGVzdA',
  action_url: '/fees/1',
  action_url_hosts: 'demo.example',
  added: 'Computing',
  address: '1 School Lane, London',
  admin_first_name: 'Ada',
  admin_last_name: 'Admin',
  admission_number: '000192',
  body: 'Dear Ada, your trial ends on 2026-10-01.',
  cancel_reason: 'The family has moved.',
  challenge: 'Zk3vN0tQ8r1LwX5yB7cD2eF4gH6jK9mP',
  code: 'MAT',
  column: 'date_of_birth',
  contact_email: 'admin@demo.example',
  content_type: 'application/pdf',
  current_password: 'demo-password',
  decision_note: 'Get well soon.',
  description: 'Open to all grades.',
  email: 'teacher@demo.example',
  employee_number: 'T001',
  enabled_features: 'transport',
  end_point: 'Demo School',
  event: 'fee.due_soon',
  features: 'transport',
  first_name: 'Amina',
  id: 'Zk3vN0tQ8r1LwX5y',
  invoice_number: 'INV-000001',
  ip: '203.0.113.7',
  key: 'subscription.expiring',
  last_name: 'García',
  leave_type: 'medical',
  license_number: 'APPIA655122G99',
  logo: 'https://demo.example/logo.png',
  message: 'Amina García has a fee that is due on 2026-10-01.',
  missing: 'Add an academic year.',
  model: 'Mercedes-Benz Tourismo',
  name: 'Demo School',
  notes: 'Paid at the office.',
  otpauth_uri: 'otpauth://totp/Demo%20School:admin@demo.example?secret=JBSWY3DPEHPK3PXP',
  parent_email: 'parent192@demo.example',
  parent_name: 'Omar García',
  parent_phone: '+44 20 7946 0192',
  password: 'demo-password',
  path: 'first_name',
  payment_details: 'Demo School, Bank of Examples\nIBAN GB33 BUKB 2020 1555 5555 55',
  permissions: 'student.read',
  phone: '+44 20 7946 0000',
  public_key: 'BPZk3vN0tQ8r1LwX5yB7cD2eF4gH6jK9mPZk3vN0tQ8r1LwX5yB7cD2eF4gH6jK9mPZk3vN0tQ8r1LwX5yB7c',
  qualification: 'BSc Mathematics',
  reason: 'Road works',
  receipt_number: 'R-000001',
  recovery_code: 'k7m2-x9qp-4tfw',
  recovery_codes: 'k7m2-x9qp-4tfw',
  reference_number: 'TRF-2026-0042',
  registration_number: 'LX21 ABC',
  request_id: '0b6f1c9e-6d2c-4f0e-9a53-5d6b0c1f7e11',
  response_body: 'ok',
  roles: 'teacher',
  roll_number: '8',
  room: 'R12B',
  route_code: 'N1',
  secret: 'JBSWY3DPEHPK3PXP',
  section: 'B',
  sender_name: 'School management',
  service: 'school-management-service',
  specialization: 'Mathematics',
  start_point: 'Mill Hill',
  subdomain: 'demo',
  subject: 'Mathematics',
  subjects: 'Mathematics',
  target_type: 'tenant',
  time_zone: 'Europe/London',
  locale: 'en-GB',
  title: 'A fee is due soon',
  token: 'Zk3vN0tQ8r1LwX5yB7cD2eF4gH6jK9mP',
  type: 'fee_reminder',
  url: 'https://demo.example/hooks',
  user_agent: 'Mozilla/5.0 (X11; Linux x86_64)',
  user_email: 'admin@demo.example',
  variables: 'first_name',
  version: '1.0.0',
  void_reason: 'Sent to the wrong family.',
  waive_reason: 'Scholarship',
  website: 'https://demo.example',

  // The names of records, as other records show them.
  academic_year_name: '2026/2027',
  bus_registration_number: 'LX21 ABC',
  cancelled_by_name: 'Ada Admin',
  class_name: 'Grade 12 B',
  class_room: 'R12B',
  class_teacher_name: 'Teo Teacher',
  corrected_by_name: 'Ada Admin',
  current_class_name: 'Grade 11 B',
  decided_by_name: 'Ada Admin',
  document_type_name: 'Birth certificate',
  driver_name: 'Grace Appiah',
  driver_phone: '+44 20 7946 1001',
  fee_structure_name: 'School fees',
  grade_name: 'Grade 12',
  marked_by_name: 'Teo Teacher',
  medium_name: 'English',
  next_class_name: 'Grade 12 B',
  programme_name: 'Science',
  recorded_by_name: 'Ada Admin',
  religion_name: 'Christianity',
  route_name: 'North',
  school_unit_name: 'Secondary',
  staff_name: 'Rosa Lind',
  stop_name: 'Mill Hill East',
  student_name: 'Amina García',
  subject_code: 'MAT',
  subject_context_name: 'Core',
  subject_name: 'Mathematics',
  teacher_name: 'Teo Teacher',
  tenant_name: 'Demo School',
  uploaded_by_name: 'Ada Admin',

  // The name of a record depends on the record.
  'AcademicTermDates.name': 'Autumn',
  'AcademicYear.name': '2026/2027',
  'AcademicYearDates.name': '2026/2027',
  'academic_year.name': '2026/2027',
  'ApiKey.name': 'Timetable display',
  'BusRoute.code': 'N1',
  'BusRoute.name': 'North',
  'by_component.name': 'Tuition',
  'class.name': 'Grade 12 B',
  'Class.name': 'Grade 12',
  'classes.name': 'Grade 12',
  'components.name': 'Tuition',
  'DocumentType.name': 'Birth certificate',
  'Driver.name': 'Grace Appiah',
  'expiring.name': 'LX21 ABC',
  'FeeComponent.name': 'Tuition',
  'FeeStructure.name': 'School fees',
  'Grade.name': 'Grade 12',
  'holiday.name': 'Christmas Day',
  'Holiday.name': 'Christmas Day',
  'InvoiceItem.description': 'School shirt',
  'items.name': 'Tuition',
  'Medium.name': 'English',
  'NewApiKey.name': 'Timetable display',
  'next_due.name': 'School fees',
  'NotificationTemplate.name': 'Fee reminder',
  'Passkey.name': 'Laptop',
  'PasskeyInput.name': 'Laptop',
  'Permission.description': 'See students',
  'plan.name': 'Premium',
  'Plan.name': 'Premium',
  'PlanChoice.name': 'Premium',
  'PlatformNotificationPreview.subject': 'Your trial ends soon',
  'PlatformNotificationTemplate.subject': 'Your trial ends soon',
  'Programme.name': 'Science',
  'Religion.name': 'Christianity',
  'Role.name': 'librarian',
  'Root.name': 'School management service',
  'Route.code': 'N1',
  'Route.name': 'North',
  'RouteChange.code': 'N1',
  'RouteInput.code': 'N1',
  'ScheduleOwner.name': 'Grade 12 B',
  'SchoolUnit.name': 'Secondary',
  'SetupGradesAnswer.name': 'Grade 12',
  'skipped_classes.name': 'Grade 11',
  'skipped_classes.reason': 'A class of this name exists.',
  'Stop.name': 'Mill Hill East',
  'stops.name': 'Mill Hill East',
  'students.reason': 'The student has left.',
  'StudentDocument.name': 'birth-certificate.pdf',
  'Subject.name': 'Mathematics',
  'SubjectContext.name': 'Core',
  'SubscriptionPlans.name': 'Premium',
  'Term.name': 'Autumn',
  'to_class.name': 'Grade 12',
  'TransportFeePlan.name': 'Bus, monthly',
  'TransportStaff.name': 'Rosa Lind',
  'TransportWorkload.name': 'Grace Appiah',
  'upcoming_holidays.name': 'Christmas Day',
  'UserRole.name': 'teacher',
  'server.database': 'school',
  'release.fingerprint': '5f2c9e1b7a04',
  'schools.status': 'active',
  'delayed_schools.error': 'relation "house" already exists',
  'delayed_schools.skip_reason': 'Repaired by hand.',
  'deliveries.channel': 'email',
  'tasks.task': 'send_email',
  'long_transactions.state': 'active',
  'replicas.state': 'streaming',
  'FailedJob.error': 'connect ECONNREFUSED',
  'Impersonation.url': 'https://demo.example/#access_token=eyJ',
};

const needsExample = (schema: JsonSchema): boolean =>
  schema.examples === undefined &&
  schema.enum === undefined &&
  schema.const === undefined &&
  schema.format === undefined &&
  (schema.type === 'string' ||
    (Array.isArray(schema.type) && schema.type.includes('string')) ||
    (schema.anyOf?.some(needsExample) ?? false));

/** Adds examples to the text fields of a schema. `owner` is the schema or the field around it. */
function addTo(schema: JsonSchema, owner: string, name: string): void {
  const example = exampleTexts[`${owner}.${name}`] ?? exampleTexts[name];
  if (example !== undefined && needsExample(schema)) schema.examples = [example];
  const inner = name || owner;
  for (const [field, property] of Object.entries(schema.properties ?? {})) addTo(property, inner, field);
  if (schema.items) addTo(schema.items, owner, name);
  if (typeof schema.additionalProperties === 'object') addTo(schema.additionalProperties, inner, '*');
  for (const alternative of schema.anyOf ?? [])
    if (alternative.properties || alternative.items) addTo(alternative, owner, name);
}

/** Adds an example to each text field of a document that has none, so that every tool shows complete examples. */
export function addExamples(document: object): void {
  const { components, paths } = document as {
    components?: { schemas?: Record<string, JsonSchema> };
    paths?: object;
  };
  for (const [name, schema] of Object.entries(components?.schemas ?? {})) addTo(schema, name, '');
  const addToContents = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    const { content } = value as { content?: Record<string, { schema?: JsonSchema }> };
    if (content) for (const { schema } of Object.values(content)) if (schema) addTo(schema, '', '');
    for (const inner of Object.values(value)) addToContents(inner);
  };
  addToContents(paths);
}

const textsByFormat: Record<string, string> = {
  date: '2026-09-01',
  'date-time': '2026-09-01T08:00:00Z',
  email: 'amina@example.org',
  uri: 'https://demo.example',
};

/** A number that a schema admits. */
function exampleNumber({ minimum, exclusiveMinimum, maximum = Infinity }: JsonSchema): number {
  return Math.min(minimum ?? (exclusiveMinimum === undefined ? 1 : exclusiveMinimum + 1), maximum);
}

/**
 * The example that tools show for a schema: its own, or one that is put together from those of its fields.
 * @param schemas  the named schemas of the document
 * @param isRequest  leaves out read-only fields
 */
export function exampleOf(schema: JsonSchema, schemas: Record<string, JsonSchema>, isRequest = false): unknown {
  const name = schema.$ref?.split('/').at(-1);
  const named = name === undefined ? undefined : schemas[name];
  if (named) return exampleOf(named, schemas, isRequest);
  const { type: types = 'object', examples, enum: values, items, properties = {}, additionalProperties } = schema;
  const known = [...(examples ?? []), ...('const' in schema ? [schema.const] : []), ...(values ?? [])];
  if (known.length > 0) return known[0];
  const [alternative] = schema.anyOf ?? schema.oneOf ?? schema.allOf ?? [];
  if (alternative) return exampleOf(alternative, schemas, isRequest);
  switch (Array.isArray(types) ? types[0] : types) {
    case 'string':
      return textsByFormat[schema.format ?? ''] ?? '';
    case 'integer':
    case 'number':
      return exampleNumber(schema);
    case 'boolean':
      return true;
    case 'null':
      return null;
    case 'array':
      return items ? [exampleOf(items, schemas, isRequest)] : [];
    default: {
      const fields = Object.entries(properties).filter(([, property]) => !(isRequest && property.readOnly));
      const others = typeof additionalProperties === 'object' ? [['first_name', additionalProperties] as const] : [];
      return Object.fromEntries(
        [...fields, ...others].map(([field, one]) => [field, exampleOf(one, schemas, isRequest)]),
      );
    }
  }
}
