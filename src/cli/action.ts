import { type Config, readConfig } from '../process/config.ts';

/**
 * The action of a command: a function of a module that is loaded only when the command runs. The function gets the
 * configuration, the arguments and the options. A number that it returns is the exit code.
 */
export const action =
  <Name extends string>(
    load: () => Promise<Record<Name, (config: Config, ...given: never[]) => Promise<unknown>>>,
    name: Name,
  ) =>
  async (...given: unknown[]): Promise<void> => {
    const { [name]: run } = await load();
    // The last one is the command itself.
    const result = await run(readConfig(process.env), ...(given.slice(0, -1) as never[]));
    if (typeof result === 'number') process.exitCode = result;
  };
