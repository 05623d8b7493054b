/** Markup that is safe to insert: its values are escaped. */
export interface Html {
  readonly markup: string;
}

const entities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

type Value = Html | string | number | false | undefined | readonly Value[];

function markupOf(value: Value): string {
  if (value === false || value === undefined) return '';
  if (typeof value === 'object') return 'markup' in value ? value.markup : value.map(markupOf).join('');
  return String(value).replace(/[&<>"]/g, (character) => entities[character] ?? '');
}

/** Markup from a template. Texts are escaped; lists are joined; false and undefined are left out. */
export const html = (parts: TemplateStringsArray, ...values: Value[]): Html => ({
  markup: String.raw({ raw: parts }, ...values.map(markupOf)),
});
