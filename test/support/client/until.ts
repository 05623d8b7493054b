/** Looks until something is there, and answers it. Gives up before the test does, so that a test that fails leaves nothing running. */
export async function until<T>(look: () => Promise<T | undefined> | T | undefined): Promise<T> {
  for (const end = Date.now() + 50_000; Date.now() < end;) {
    const found = await look();
    if (found !== undefined) return found;
    await new Promise((done) => setTimeout(done, 20));
  }
  throw new Error(`It did not come about: ${String(look)}`);
}
