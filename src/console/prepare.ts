// Builds the console at `npm ci` and `npm install`. Installations without development dependencies have no vite; the
// service runs there without the console.
const vite = await import('vite').catch(() => undefined);
if (vite) await vite.build({ logLevel: 'warn' });
else
  process.stdout.write(
    'The operator console was not built because vite is not installed. ' +
      'The API works without it; see docs/operations.md.\n',
  );
