/** Stops the server of the run and removes all it kept. */
export default async function teardown(): Promise<void> {
  await globalThis.testServer?.stop();
}
