import { Argument, type Command, InvalidArgumentError, Option } from 'commander';
import { action } from './action.ts';
import { readConfig } from '../process/config.ts';
import type { Format } from './output.ts';

const id = (value: string) => {
  if (!/^[1-9]\d{0,14}$/.test(value)) throw new InvalidArgumentError('must be an id');
  return Number(value);
};

const ids = (value: string, earlier: number[] = []) => [...earlier, id(value)];

const roles = ['admin', 'analyst'] as const;

function addOperatorCommands(program: Command): void {
  const operator = program.command('operator').description('platform operators');

  operator
    .command('list')
    .description('list all operators with their role, their schools and their sessions')
    .option('--json', 'print JSON')
    .action(action(() => import('./operator.ts'), 'operatorList'));

  operator
    .command('create')
    .description('create an operator; prompts for the password unless OPERATOR_PASSWORD is set')
    .argument('<email>')
    .addOption(new Option('--role <role>', 'role of the operator').choices(roles).default('admin'))
    .option('--first-name <name>', 'first name', 'Platform')
    .option('--last-name <name>', 'last name', 'Operator')
    .option('--tenant <id>', 'a school that an analyst may see (repeatable; default: all schools)', ids)
    .option('--json', 'print JSON')
    .action(action(() => import('./operator.ts'), 'operatorCreate'));

  operator
    .command('reset-second-factor')
    .description('remove the second factor of an operator who has lost it')
    .argument('<email>')
    .option('--json', 'print JSON')
    .action(action(() => import('./operator.ts'), 'operatorResetSecondFactor'));

  operator
    .command('disable')
    .description('lock an operator out and end their sessions')
    .argument('<email>')
    .option('--yes', 'skip the confirmation')
    .option('--json', 'print JSON')
    .action(async (email: string, options: Format & { yes?: boolean }) => {
      const { operatorChange } = await import('./operator.ts');
      await operatorChange(readConfig(process.env), email, 'disable', { is_active: false }, options);
    });

  operator
    .command('enable')
    .description('let a disabled operator log in again')
    .argument('<email>')
    .option('--json', 'print JSON')
    .action(async (email: string, options: Format) => {
      const { operatorChange } = await import('./operator.ts');
      await operatorChange(readConfig(process.env), email, 'enable', { is_active: true }, options);
    });

  operator
    .command('set-role')
    .description('change the role of an operator and end their sessions')
    .argument('<email>')
    .addArgument(new Argument('<role>', 'the new role').choices(roles))
    .option('--json', 'print JSON')
    .action(async (email: string, role: 'admin' | 'analyst', options: Format) => {
      const { operatorChange } = await import('./operator.ts');
      await operatorChange(readConfig(process.env), email, 'set_role', { role }, options);
    });

  operator
    .command('set-tenants')
    .description('set the schools that an analyst may see, and end their sessions')
    .argument('<email>')
    .argument('[id...]', 'ids of the schools', ids)
    .option('--all', 'all schools')
    .option('--json', 'print JSON')
    .action(async (email: string, tenantIds: number[], options: Format & { all?: boolean }) => {
      if ((options.all ?? false) === tenantIds.length > 0) throw new Error('Give either ids of schools or --all.');
      const { operatorChange } = await import('./operator.ts');
      const change = { tenant_ids: options.all ? null : tenantIds };
      await operatorChange(readConfig(process.env), email, 'set_tenants', change, options);
    });
}

function addStudentCommands(program: Command): void {
  const student = program.command('student').description('the personal data of one student');

  student
    .command('export')
    .description('write all data of a student to a zip file: student.json and their documents')
    .argument('<school>', 'id or subdomain of the school')
    .argument('<id>', 'id of the student', id)
    .option('--file <path>', 'target file (default: DATA_DIR/exports/<subdomain>-<id>-student-<id>-<time>.zip)')
    .option('--json', 'print JSON')
    .action(action(() => import('./student.ts'), 'studentExport'));

  student
    .command('erase')
    .description('erase the personal data of a student for good; amounts, numbers and totals stay')
    .argument('<school>', 'id or subdomain of the school')
    .argument('<id>', 'id of the student', id)
    .option('--yes', 'skip the confirmation')
    .option('--json', 'print JSON')
    .action(action(() => import('./student.ts'), 'studentErase'));
}

/** Adds `school operator …` and `school student …`. */
export function addPeopleCommands(program: Command): void {
  addOperatorCommands(program);
  addStudentCommands(program);
}
