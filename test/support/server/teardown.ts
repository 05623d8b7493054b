/** Ends the run: its Postgres server, everything else that is still running, and its files. */
export default async function teardown(): Promise<void> {
  await globalThis.testRun?.end();
}
