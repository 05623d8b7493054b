import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'libpg-query';
import { format, resolveConfig } from 'prettier';

/** @throws if a name is a word of SQL, such as `user` and `order` */
async function requireSql(text: string): Promise<void> {
  await parse(text).catch((error: unknown) => {
    const message = error instanceof Error ? error.message : String(error);
    throw new Error(`Choose other names. With these, the migration is no SQL: ${message}`);
  });
}

/** Changes of files that are written together, so that a fault leaves nothing half done. */
export class Changes {
  readonly #texts = new Map<string, string>();
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  /** Adds a file from a template, in which `{{name}}` stands for a value. Lines that become empty by this are removed. */
  async add(path: string, template: string, values: Record<string, string>): Promise<void> {
    if (existsSync(join(this.#root, path))) throw new Error(`${path} exists already.`);
    const text = await readFile(join(import.meta.dirname, 'templates', template), 'utf8');
    const filled = text.split('\n').map((line) => {
      const result = line.replace(/\{\{(\w+)\}\}/g, (_, name: string) => {
        const value = values[name];
        if (value === undefined) throw new Error(`${template} names {{${name}}}, which has no value.`);
        return value;
      });
      return result.trim() === '' && line.trim() !== '' ? [] : [result];
    });
    this.#texts.set(path, filled.flat().join('\n'));
  }

  /** Changes a file. `pattern` must occur in it; `$&` and `$1` in the replacement stand for what was found. */
  async edit(path: string, pattern: RegExp, replacement: string): Promise<void> {
    const text = this.#texts.get(path) ?? (await readFile(join(this.#root, path), 'utf8'));
    if (!pattern.test(text)) throw new Error(`${path} has no place for the change: ${String(pattern)}`);
    this.#texts.set(path, text.replace(pattern, replacement));
  }

  /** Formats and writes everything. Returns the paths. */
  async write(): Promise<string[]> {
    const options = (await resolveConfig(join(this.#root, 'package.json'))) ?? {};
    for (const [path, text] of this.#texts)
      if (path.endsWith('.ts')) this.#texts.set(path, await format(text, { ...options, parser: 'typescript' }));
      else if (path.startsWith('migrations/')) await requireSql(text);
    for (const [path, text] of this.#texts) await writeFile(join(this.#root, path), text);
    return [...this.#texts.keys()];
  }
}

/** Adds a line below the first heading "Added" of the changes that are not released. */
export async function addToChangelog(changes: Changes, line: string): Promise<void> {
  const heading = /\n## Unreleased\n(?:(?!\n## )[^])*?\n### Added.*\n/;
  await changes
    .edit('CHANGELOG.md', heading, `$&* ${line}\n`)
    .catch(() => changes.edit('CHANGELOG.md', /\n## Unreleased\n/, `$&\n### Added\n* ${line}\n`));
}
