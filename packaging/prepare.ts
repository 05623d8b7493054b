// Builds the console and the guide at `npm ci` and `npm install`. Installations without development dependencies have
// no vite; the service runs there without them.
const vite = await import('vite').catch(() => undefined);
if (vite) {
  await vite.build({ logLevel: 'warn' });
  const { buildGuide } = await import('../docs/site/build.ts');
  await buildGuide();
} else
  process.stdout.write(
    'The operator console and the guide were not built because vite is not installed. ' +
      'The API works without them; see docs/operations.md.\n',
  );
