/** The number of characters to insert, remove or replace to turn one word into the other (Levenshtein distance). */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (const [index, letter] of Array.from(from).entries()) {
    const next = [index + 1];
    for (let column = 1; column <= to.length; column++)
      next.push(
        Math.min(
          (row[column] ?? 0) + 1,
          (next[column - 1] ?? 0) + 1,
          (row[column - 1] ?? 0) + (to[column - 1] === letter ? 0 : 1),
        ),
      );
    row = next;
  }
  return row.at(-1) ?? 0;
}

const letters = (name: string) =>
  name
    .slice(0, 100)
    .toLowerCase()
    .replace(/[^a-z0-9]/g, '');

/**
 * The end of a message about an unknown name, for example “. Did you mean page_size?”. It suggests the nearest known
 * name; empty if more than a third of the letters differ. One letter of a short name may differ.
 */
export function didYouMean(given: string, known: readonly string[]): string {
  const word = letters(given);
  const [nearest] = known
    .map((name) => ({ name, distance: editDistance(word, letters(name)) }))
    .sort((a, b) => a.distance - b.distance);
  return nearest && nearest.distance <= Math.max(1, word.length / 3) ? `. Did you mean ${nearest.name}?` : '';
}
