import leven from 'leven';
import type { SheetRow } from '../../documents/spreadsheets.ts';

/** The fields of an imported file, and the headers that mean them. */
export interface FileFields {
  fields: readonly string[];
  required: readonly string[];
  /** Other headers of a field, as other systems write them: first those that mean it most surely. */
  synonyms: Readonly<Record<string, readonly string[]>>;
  /** Fields that may have several columns. */
  combined: readonly string[];
}

/** What the user says about the columns of a file. */
export interface ColumnChoice {
  /** The fields of headers: null for a column to leave out. */
  columns: Readonly<Record<string, string | null>>;
  ignoreUnknown: boolean;
}

/** How a column is read. */
export interface MappedColumn {
  column: string;
  field: string;
  matched_by: 'name' | 'synonym' | 'columns';
}

/** A column that is not read, and the field that it may be. */
export interface UnknownColumn {
  column: string;
  nearest_field: string | null;
}

interface HeaderError {
  row: number;
  column: string;
  message: string;
}

export interface HeaderReading {
  /** The field of each column. */
  columnAt: (string | undefined)[];
  /** Required fields without a column. */
  missing: string[];
  mapping: MappedColumn[];
  unknown: UnknownColumn[];
  errors: HeaderError[];
}

/** Normalizes a header: "First name", first_name, FIRSTNAME and "First name:" are the same. */
const normalize = (header: string) => header.toLowerCase().replace(/[^\p{L}\p{M}\p{N}]+/gu, '') || header;

/** Without a remark, as in "Date of birth (DD/MM/YYYY)". */
const withoutRemark = (header: string) => header.split(/[([{]/u, 1)[0] ?? '';

/** Error messages and reports show this much of a header. */
const shown = (header: string) => header.slice(0, 100);

/** The meaning of a header. A lower rank is more certain. */
interface Meaning {
  field: string | null;
  by: MappedColumn['matched_by'];
  rank: number;
}

/** The meanings of normalized headers. */
function meaningsOf({ fields, synonyms }: FileFields, chosen: ColumnChoice['columns']): Map<string, Meaning> {
  const meanings = new Map<string, Meaning>();
  for (const field of fields)
    for (const [at, synonym] of (synonyms[field] ?? []).entries())
      meanings.set(normalize(synonym), { field, by: 'synonym', rank: 2 + at });
  for (const field of fields) meanings.set(normalize(field), { field, by: 'name', rank: 1 });
  for (const [header, field] of Object.entries(chosen))
    meanings.set(normalize(header), { field, by: 'columns', rank: 0 });
  return meanings;
}

/** The field whose name or synonym is nearest to a header; null if none is similar. */
export function nearestField(header: string, { fields, synonyms }: FileFields): string | null {
  const word = normalize(shown(header));
  const distanceTo = (name: string) => (name.length >= 5 && word.includes(name) ? 2 : leven(word, name));
  const [nearest] = fields
    .flatMap((field) => [field, ...(synonyms[field] ?? [])].map((name) => ({ field, name: normalize(name) })))
    .map(({ field, name }) => ({ field, distance: distanceTo(name) }))
    .sort((one, other) => one.distance - other.distance);
  return nearest && nearest.distance <= Math.max(1, word.length / 3) ? nearest.field : null;
}

/** What is wrong with the parameter `columns`, by the header that it names. */
export function columnFaults({ columns }: ColumnChoice, known: FileFields, header: string[]): [string, string][] {
  const headers = new Set(header.map(normalize));
  const seen = new Set<string>();
  return Object.entries(columns).flatMap(([column, field]): [string, string][] => {
    if (!headers.has(normalize(column))) return [[column, 'The file has no such column.']];
    if (field === null) return [];
    if (!known.fields.includes(field)) {
      const nearest = nearestField(field, known);
      return [[column, `There is no field ${shown(field)}.${nearest === null ? '' : ` Did you mean ${nearest}?`}`]];
    }
    const isRepeated = seen.has(field) && !known.combined.includes(field);
    seen.add(field);
    return isRepeated ? [[column, `Another column is named for the field ${field}.`]] : [];
  });
}

/** Finds the field of each column. If several columns mean a field, the most certain one is read. */
export function readHeader(known: FileFields, choice: ColumnChoice, { line, cells }: SheetRow): HeaderReading {
  const meanings = meaningsOf(known, choice.columns);
  const meaningAt = cells.map(
    (header) => meanings.get(normalize(header)) ?? meanings.get(normalize(withoutRemark(header))),
  );
  const bestOf = new Map<string, number>();
  for (const meaning of meaningAt)
    if (meaning?.field) bestOf.set(meaning.field, Math.min(meaning.rank, bestOf.get(meaning.field) ?? Infinity));
  const reading: HeaderReading = { columnAt: [], missing: [], mapping: [], unknown: [], errors: [] };
  const fail = (column: string, message: string) => reading.errors.push({ row: line, column: shown(column), message });
  for (const [position, header] of cells.entries()) {
    const meaning = meaningAt[position];
    if (header === '' || meaning?.field === null) continue;
    const field = meaning?.field;
    const best = field === undefined ? undefined : bestOf.get(field);
    const isCombined = field !== undefined && known.combined.includes(field) && (best ?? 0) > 1;
    if (field !== undefined && meaning && (meaning.rank === best || isCombined)) {
      if (reading.columnAt.includes(field) && !isCombined) fail(field, 'appears twice in the header');
      reading.columnAt[position] = field;
      reading.mapping.push({ column: shown(header), field, matched_by: meaning.by });
      continue;
    }
    const nearest_field = field ?? nearestField(header, known);
    reading.unknown.push({ column: shown(header), nearest_field });
    if (choice.ignoreUnknown) continue;
    const remedy = 'To leave such columns out, send ignore_unknown=true.';
    if (field !== undefined) fail(header, `is a second column for ${field}. ${remedy}`);
    else {
      const hint = nearest_field === null ? '' : ` Did you mean ${nearest_field}?`;
      fail(header, `is not a known column. Available: ${known.fields.join(', ')}.${hint} ${remedy}`);
    }
  }
  reading.missing = known.required.filter((field) => !reading.columnAt.includes(field));
  for (const field of reading.missing)
    fail(field, `is missing in the header. Required: ${known.required.join(' and ')}`);
  return reading;
}

const ofPerson = {
  external_id: ['sourcedId', 'SIS ID', 'External reference', 'Source ID', 'Person ID'],
  first_name: ['givenName', 'Given names', 'Forename', 'Forenames', 'Legal first name', 'First', 'FName'],
  last_name: ['familyName', 'Surname', 'Family', 'Legal last name', 'Last', 'LName'],
  date_of_birth: ['DOB', 'Birthdate', 'Birth date', 'Birthday', 'Date birth', 'D.O.B.'],
  gender: ['Sex', 'Legal sex'],
  email: ['E-mail address', 'Email ID', 'Mail', 'Primary email', 'School email', 'Secondary email'],
  phone: [
    'Phone number',
    'Phone no',
    'Telephone',
    'Telephone number',
    'Tel',
    'Mobile',
    'Mobile phone',
    'Mobile number',
    'Mobile no',
    'Cell',
    'Cell phone',
    'sms',
  ],
  address: ['Home address', 'Street address', 'Postal address', 'Mailing address', 'Residence address', 'Street'],
  is_active: ['Active', 'Enabled', 'enabledUser', 'Account enabled', 'Status'],
  left_on: ['Leaving date', 'Date of leaving', 'Leave date', 'Exit date', 'Withdrawal date', 'End date', 'endDate'],
  leaving_reason: ['Reason for leaving', 'Exit reason', 'Withdrawal reason'],
  create_user_account: ['Create login', 'Create user'],
  role: ['User role', 'User type'],
};

/** The headers that other systems write: spreadsheets of schools, Microsoft SDS, OneRoster, Clever. */
export const synonyms: Record<'students' | 'teachers', Record<string, readonly string[]>> = {
  students: {
    ...ofPerson,
    external_id: [...ofPerson.external_id, 'Student ID', 'Student SIS ID', 'Pupil ID'],
    first_name: [...ofPerson.first_name, 'Student first name'],
    last_name: [...ofPerson.last_name, 'Student last name'],
    email: [...ofPerson.email, 'Student email'],
    phone: [...ofPerson.phone, 'Student phone', 'Contact number'],
    address: [...ofPerson.address, 'Student street', 'Student address'],
    is_active: [...ofPerson.is_active, 'Student status', 'Enrollment status'],
    roll_number: ['Roll No', 'Roll', 'Roll num', 'Class roll number', 'Class roll no'],
    admission_number: [
      'Admission No',
      'Adm No',
      'Admission ID',
      'Student number',
      'Student no',
      'Registration number',
      'Registration no',
      'Reg No',
      'Register number',
      'Enrollment number',
      'Enrolment number',
      'GR number',
      'GR No',
      'identifier',
    ],
    class: [
      'Class name',
      'Homeroom',
      'Homeroom name',
      'Form',
      'Form group',
      'Form class',
      'Tutor group',
      'Registration group',
      'Reg group',
      'Class section',
    ],
    grade: ['Grade level', 'Grade name', 'grades', 'Current grade', 'Year group', 'Year level', 'Standard', 'Std'],
    religion: ['Faith'],
    parent_name: [
      'Guardian',
      'Guardian name',
      'Parent',
      'Parent/Guardian',
      'Parent or guardian',
      'Parent/Guardian name',
      'Contact name',
      'Father name',
      "Father's name",
      'Mother name',
      "Mother's name",
    ],
    parent_phone: [
      'Guardian phone',
      'Guardian phone number',
      'Guardian mobile',
      'Guardian contact',
      'Parent phone number',
      'Parent mobile',
      'Parent contact',
      'Parent/Guardian phone',
      'Contact phone',
      'Father phone',
      'Mother phone',
    ],
    parent_email: [
      'Guardian email',
      'Guardian email address',
      'Parent email address',
      'Parent/Guardian email',
      'Contact email',
      'Father email',
      'Mother email',
    ],
  },
  teachers: {
    ...ofPerson,
    external_id: [...ofPerson.external_id, 'Teacher ID', 'Teacher SIS ID', 'Staff ID'],
    first_name: [...ofPerson.first_name, 'Teacher first name'],
    last_name: [...ofPerson.last_name, 'Teacher last name'],
    email: [...ofPerson.email, 'Teacher email', 'Work email'],
    phone: [...ofPerson.phone, 'Teacher phone', 'Work phone'],
    employee_number: [
      'Employee No',
      'Employee ID',
      'Emp No',
      'Emp ID',
      'Staff number',
      'Staff No',
      'Teacher number',
      'Teacher No',
      'Payroll number',
      'Staff code',
      'identifier',
    ],
    qualification: ['Qualifications', 'Degree'],
    specialization: ['Specialisation', 'Subject specialization', 'Main subject', 'Subject'],
    joined_on: ['Joining date', 'Date of joining', 'Join date', 'Date joined', 'DOJ', 'Hire date', 'Start date'],
  },
};
