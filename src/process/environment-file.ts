import { existsSync } from 'node:fs';

// Imported for its effect, before anything reads a setting. Variables that are already set take precedence over the
// file. ENV_FILE names another file; empty, it means none.
const file = process.env['ENV_FILE'] ?? '.env';
if (file !== '' && (process.env['ENV_FILE'] !== undefined || existsSync(file))) {
  try {
    process.loadEnvFile(file);
  } catch (error) {
    process.stderr.write(`The settings in ${file} cannot be read: ${(error as Error).message}\n`);
    process.exit(1);
  }
}
