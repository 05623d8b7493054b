import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';

const script = () => readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/**
 * The serious accessibility issues of a page: the rule, and up to three elements.
 * @param rules  only these rules; by default all
 */
export async function seriousIssues(page: Page, rules?: string[]): Promise<string[][]> {
  // A page that was loaded again has no axe any more.
  if (await page.evaluate("typeof axe === 'undefined'")) await page.evaluate(await script());
  // Nothing to preload: the console has no media.
  const options = { resultTypes: ['violations'], preload: false, ...(rules ? { runOnly: rules } : {}) };
  const violations = await page.evaluate<
    { id: string; impact: string; nodes: { html: string; failureSummary: string }[] }[]
  >(`axe.run(document, ${JSON.stringify(options)}).then((results) => results.violations)`);
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => [id, ...nodes.slice(0, 3).map(({ html, failureSummary }) => `${html} ${failureSummary}`)]);
}
