import leven from 'leven';

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
    .map((name) => ({ name, distance: leven(word, letters(name)) }))
    .sort((a, b) => a.distance - b.distance);
  return nearest && nearest.distance <= Math.max(1, word.length / 3) ? `. Did you mean ${nearest.name}?` : '';
}
