import { compareServers } from '../servers/claims.ts';
import { readServers } from '../servers/servers.ts';
import { planReconciliation, reconcileServers } from '../servers/reconcile.ts';
import { requireCurrent } from '../servers/tokens.ts';
import { type Verification, verifyServers } from '../servers/verify.ts';
import type { Config } from '../process/config.ts';
import { exitCodes } from './exit-codes.ts';
import { describeKept } from './kept.ts';
import { withHome } from './node.ts';
import { confirm, counted, type Format, print } from './output.ts';

/** Prints what `school node verify` has found. */
function printVerification({ disagreements, findings, unreachable, kept }: Verification): void {
  for (const { server, error } of unreachable) print(`${server.name} does not answer: ${error}`);
  for (const { text } of [...findings, ...disagreements]) print(text);
  for (const line of describeKept(kept)) print(line);
  const problems = disagreements.length + findings.length + unreachable.length;
  print(
    problems === 0 ? 'All servers agree.' : `${counted(problems, 'problem')}. See: school node reconcile --dry-run`,
  );
}

/** `school node verify`. @returns the exit code: `failed` if something is wrong, or a server does not answer */
export async function nodeVerify(config: Config, { json }: Format): Promise<number> {
  const result = await withHome(config, async (home, url) => {
    const [, ...nodes] = await readServers(home, url);
    return verifyServers(home, nodes);
  });
  const { disagreements, findings, unreachable, kept } = result;
  if (json)
    print(
      JSON.stringify({
        disagreements: disagreements.map(({ school, subdomain, kind, holder, others, text }) => ({
          id: school,
          subdomain,
          kind,
          server: holder?.name ?? null,
          others: others.map(({ name }) => name),
          text,
        })),
        findings,
        unreachable: unreachable.map(({ server, error }) => ({ server: server.name, error })),
        unconfirmed_moves: kept.map(({ school, subdomain, server, current }) => ({
          id: school,
          subdomain,
          server: current,
          kept_on: server.name,
        })),
      }),
    );
  else printVerification(result);
  return disagreements.length + findings.length + unreachable.length > 0 ? exitCodes.failed : exitCodes.done;
}

/**
 * `school node reconcile`: makes the directory agree with the servers.
 * @returns the exit code: `attention` if something is left to a person
 * @throws if a server does not answer, or the home may not decide
 */
export const nodeReconcile = (
  config: Config,
  { dryRun, yes, homeUrl, json }: Format & { dryRun?: boolean; yes?: boolean; homeUrl?: string },
): Promise<number> =>
  withHome(config, async (home, url) => {
    const [, ...nodes] = await readServers(home, url);
    if (nodes.length === 0) throw new Error('There are no nodes.');
    const comparison = await compareServers(home, nodes);
    const [silent] = comparison.unreachable;
    if (silent)
      throw new Error(
        `${silent.server.name} does not answer: ${silent.error}. It may have newer schools, so that nothing was changed.`,
      );
    const plan = planReconciliation(comparison);
    const say = (line: string) => {
      if (!json) print(line);
    };
    for (const { text, others } of plan.steps)
      say(`${text}${others.length > 0 ? ' The older tables are kept under another name.' : ''}`);
    for (const { text, advice } of plan.people) say(`For a person: ${text}\n  ${advice.replaceAll('\n', '\n  ')}`);
    say(
      `${counted(plan.steps.length, 'school')} to settle, ${counted(plan.people.length, 'question')} for a person; ` +
        `the home and ${counted(nodes.length, 'node')} copy each other's tables again.`,
    );
    const questions = plan.people.map(({ text, advice }) => ({ text, advice }));
    if (!dryRun) {
      await requireCurrent(home, nodes);
      await confirm('This changes the directory of schools', yes);
      const left = await reconcileServers(home, nodes, comparison, { ownUrl: url, homeUrl, onStep: say });
      for (const text of left) say(`For a person: ${text}`);
      questions.push(...left.map((text) => ({ text, advice: '' })));
      say('Update each forwarder: school forwarder create');
    }
    if (json)
      print(JSON.stringify({ steps: plan.steps.map(({ text }) => text), questions, is_applied: dryRun !== true }));
    return questions.length > 0 ? exitCodes.attention : exitCodes.done;
  });
