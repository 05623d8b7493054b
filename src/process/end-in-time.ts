import { requireAnswer } from '../database/pool/pool.ts';

/** Waits for the end of `work`, at most for this time. @returns whether it has ended @throws what `work` throws */
export async function endsWithin(timeoutMs: number, work: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<false>((done) => {
    timer = setTimeout(() => done(false), timeoutMs);
  });
  try {
    return await Promise.race([work.then(() => true), timeout]);
  } finally {
    clearTimeout(timer);
  }
}

/** How long work for a database takes before it is asked whether it answers. */
const askAfterMs = 5_000;

/** Waits for the end of `work` for as long as its database answers. @returns whether it has ended */
export async function endsWhileAnswered(url: string, work: Promise<unknown>): Promise<boolean> {
  while (!(await endsWithin(askAfterMs, work))) {
    const isAnswered = await requireAnswer(url).then(
      () => true,
      () => false,
    );
    if (!isAnswered) return false;
  }
  return true;
}
