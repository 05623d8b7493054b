import { text as readText } from 'node:stream/consumers';
import type { Job } from 'graphile-worker';
import { z } from 'zod';
import { answerOf, questionQuery, type StoredQuestion } from '../../src/analytics/questions.ts';
import { csvType, sheetFile } from '../../src/documents/spreadsheets.ts';
import { sendJobEmail } from '../job-email.ts';
import type { TaskContext } from '../task-context.ts';
import { escapeHtml } from './send_email.ts';

const Payload = z.object({ question_id: z.int(), user_id: z.int() });

/** The result of `core.answer_prepare`. */
interface Prepared extends StoredQuestion {
  id: number;
  owner: string;
  is_owner: boolean;
  recipient: { email: string; name: string };
}

/**
 * Runs a saved question with the rights of its owner and sends the answer to one recipient. If the question cannot be
 * answered, its owner gets the reason, and the other recipients get nothing.
 */
export async function send_answer(payload: unknown, context: TaskContext, job: Job): Promise<void> {
  const { question_id, user_id } = Payload.parse(payload);
  const { rows } = await context.pool.query<{ prepared: Prepared | null }>(
    'select core.answer_prepare($1, $2) as prepared',
    [question_id, user_id],
  );
  const prepared = rows[0]?.prepared;
  if (!prepared) return;
  const { body } = await context.analytics.run(questionQuery(prepared));
  const answer = await answerOf(prepared, Buffer.from(body).toString());
  if ('refusal' in answer && !prepared.is_owner) return;
  const { recipient, name } = prepared;
  const content =
    'refusal' in answer
      ? undefined
      : Buffer.from(await readText(sheetFile('csv', 'answer', [{ name, ...answer }]).content));
  const message =
    'refusal' in answer
      ? `Your saved question "${name}" could not be answered: ${answer.refusal}`
      : `The answer to the saved question "${name}" of ${prepared.owner} is attached.`;
  const link = `${context.links.publicUrl}/graphql/ide/?question=${String(prepared.id)}`;
  await sendJobEmail(context, job, {
    to: { name: recipient.name, address: recipient.email },
    subject: name,
    text: `Hello ${recipient.name},\n\n${message}\n\n${link}\n`,
    html: [
      `<p>Hello ${escapeHtml(recipient.name)},</p>`,
      `<p>${escapeHtml(message)}</p>`,
      `<p><a href="${link}">Open the question</a></p>`,
    ].join(''),
    ...(content ? { attachments: [{ filename: 'answer.csv', content, contentType: csvType }] } : {}),
  });
}
