import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

// No line of src/http and src/endpoints is longer than the formatter's width. The formatter leaves long texts alone.

const maxLength = 120;
const files = execFileSync('git', ['ls-files', 'src/http/**.ts', 'src/endpoints/**.ts'], { encoding: 'utf8' });
const long = files
  .trim()
  .split('\n')
  .flatMap((file) =>
    readFileSync(file, 'utf8')
      .split('\n')
      .flatMap((line, index) =>
        line.length > maxLength ? [`${file}:${String(index + 1)} has ${String(line.length)} characters.`] : [],
      ),
  );
if (long.length > 0) {
  process.stderr.write(
    `${long.join('\n')}\nAt most ${String(maxLength)} are allowed. Join the parts of a long text with +.\n`,
  );
  process.exitCode = 1;
}
