// Builds the console at `npm ci` and `npm install`. Where development packages were left out there is nothing to build it with: the service runs without it.
const vite = await import('vite').catch(() => undefined);
if (vite) await vite.build({ logLevel: 'warn' });
else
  process.stdout.write(
    'The operators’ console was not built, since vite is not installed. The API works without it; see docs/operations.md.\n',
  );
