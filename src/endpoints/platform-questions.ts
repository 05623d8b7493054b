import { z } from 'zod';
import { answerOf, questionQuery, type StoredQuestion } from '../analytics/questions.ts';
import { csvType, sheetFile } from '../documents/spreadsheets.ts';
import { ApiError } from '../domain/errors.ts';
import { disconnectSignal } from '../http/disconnect.ts';
import { isBlank } from '../domain/text.ts';
import { created, download, type FileHandler, json, page, resource } from '../http/endpoint.ts';
import { requestOwner } from '../http/request-owner.ts';
import { Deleted, email, id, nameText, optionalText, pathId, timestamp, timestamps } from '../http/schemas.ts';

const schedule = z.enum(['daily', 'weekly', 'monthly']).nullable();
const fields = {
  name: nameText(200).meta({ examples: ['Students by grade'] }),
  description: optionalText(2000),
  query: z
    .string()
    .min(1)
    .max(20_000)
    .refine((text) => !isBlank(text), 'must not be empty')
    .meta({ examples: ['{ tenants { nodes { name studentCount } } }'] }),
  variables: z.record(z.string(), z.unknown()),
  schedule,
  recipients: z.array(email).max(20),
};

const QuestionInput = z
  .strictObject({
    ...fields,
    variables: fields.variables.optional(),
    schedule: fields.schedule.optional(),
    recipients: fields.recipients.optional(),
  })
  .meta({ id: 'SavedQuestionInput' });
const QuestionChange = z.strictObject(fields).partial().meta({ id: 'SavedQuestionChange' });

export const Question = z
  .object({
    id,
    ...fields,
    description: z.string().nullable(),
    is_built_in: z.boolean(),
    owner: z.object({ id, email: z.string() }).nullable(),
    recipients: z.array(z.string().meta({ examples: ['operator@demo.example'] })),
    next_run_at: timestamp.nullable(),
    last_run_at: timestamp.nullable(),
    ...timestamps,
  })
  .meta({ id: 'SavedQuestion' });

/** Runs a question with the rights of the caller. */
const run: FileHandler = async ({ req, res, call, params, services }) => {
  const question = JSON.parse(await call('platform_questions_run', { id: params['id'] })) as StoredQuestion;
  const { body, faults } = await services.analytics.run(
    requestOwner(req),
    questionQuery(question),
    disconnectSignal(res),
  );
  for (const fault of faults) services.logger.error({ request_id: req.id, error: 'graphql', cause: fault });
  const answer = await answerOf(question, Buffer.from(body).toString());
  if ('refusal' in answer) throw new ApiError('invalid_state', `The question cannot be answered. ${answer.refusal}`);
  return sheetFile('csv', 'answer', [{ name: question.name, ...answer }]);
};

export const platformQuestions = resource(
  '/platform/questions',
  'Saved questions',
  'GraphQL queries of analysts, visible to all operators.',
  {
    'GET /': {
      operation: 'platform_questions_list',
      summary: 'List saved questions',
      response: page(Question, { owner_id: pathId.optional() }),
    },
    'POST /': {
      operation: 'platform_questions_create',
      summary: 'Save a question',
      body: QuestionInput,
      response: created(Question),
    },
    'GET /:id': { operation: 'platform_questions_get', summary: 'Get a saved question', response: json(Question) },
    'GET /:id/answer': {
      operation: 'platform_questions_run',
      summary: 'Run a saved question',
      description: 'Shows the schools of the caller.',
      response: download([csvType], run),
    },
    'PUT /:id': {
      operation: 'platform_questions_update',
      summary: 'Change a saved question',
      body: QuestionChange,
      response: json(Question),
    },
    'DELETE /:id': {
      operation: 'platform_questions_delete',
      summary: 'Delete a saved question',
      response: json(Deleted),
    },
  },
);
