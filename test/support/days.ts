/** Time zones of which at every moment one at least has another day than UTC. */
export const farZones = ['Pacific/Kiritimati', 'Pacific/Pago_Pago'];

/** The day that it is somewhere, YYYY-MM-DD. */
export const dayIn = (timeZone: string) => new Date().toLocaleDateString('sv-SE', { timeZone });

/** Waits where the day is about to end (UTC): for the head of a file that takes its day once. */
export async function steadyDay(): Promise<void> {
  const left = 86_400_000 - (Date.now() % 86_400_000);
  if (left < 60_000) await new Promise((done) => setTimeout(done, left + 1000));
}
