import { useEffect, useRef, useState } from 'preact/hooks';
import { useDebounced } from '../data/load.ts';

/** The text in the search box. Once the operator pauses, it becomes the search of the list. */
export function useSearchText(search: string, onSearch: (search: string) => void): [string, (text: string) => void] {
  const [typed, setTyped] = useState(search);
  const debounced = useDebounced(typed, 200);
  const lastSearch = useRef(search);
  useEffect(() => {
    if (debounced.trim() === search) return;
    lastSearch.current = debounced.trim();
    onSearch(lastSearch.current);
  }, [debounced]);
  // Take over a search that came from a link or the back button. Ignore our own: the operator may have typed on.
  useEffect(() => {
    if (search === lastSearch.current) return;
    lastSearch.current = search;
    setTyped(search);
  }, [search]);
  return [typed, setTyped];
}
