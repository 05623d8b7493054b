/**
 * Calls `look` every 20 ms until it returns something other than undefined, and returns that. The type excludes
 * `false`, which would end the wait.
 * @throws after 50 s, before the test itself times out, so that a failing test leaves nothing running
 */
export async function until<T extends object | string | number | true | null>(
  look: () => Promise<T | undefined> | T | undefined,
): Promise<T> {
  for (const end = Date.now() + 50_000; Date.now() < end;) {
    const found = await look();
    if (found !== undefined) return found;
    await new Promise((done) => setTimeout(done, 20));
  }
  throw new Error(`The condition was not met in time: ${String(look)}`);
}
