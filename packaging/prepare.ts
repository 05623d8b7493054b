// Builds the console, the guide and the program for analytics at `npm ci` and `npm install`. Installations without
// development dependencies have no vite; the service runs there without them.
const vite = await import('vite').catch(() => undefined);
if (vite) {
  await vite.build({ logLevel: 'warn' });
  const { buildGuide } = await import('../docs/site/build.ts');
  await buildGuide();
  const { buildAnalytics } = await import('./analytics.ts');
  await buildAnalytics();
} else
  process.stdout.write(
    'The operator console and the guide were not built because vite is not installed. ' +
      'The API works without them, and analytics start more slowly; see docs/operations/running.md.\n',
  );
