const isTerminal = process.stdout.isTTY;

/** Prints text for a person at a terminal. */
export const print = (text = '') => process.stdout.write(`${text}\n`);

/**
 * Prints what happens at the start and the end of the process: at a terminal as text, and else as a line of the log,
 * so that a program which collects the log finds nothing but JSON. It does not depend on LOG_LEVEL.
 * @param facts  more fields of the line
 * @param atTerminal  prints the same for a person; by default the message alone
 */
export function announce(message: string, facts: object = {}, atTerminal: () => void = () => print(message)): void {
  if (isTerminal) atTerminal();
  else print(JSON.stringify({ level: 'info', time: new Date().toISOString(), message, ...facts }));
}
