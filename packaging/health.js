// The health check of the container: the API if this process serves it, else the metrics of the worker.
const { HEALTH_URL, PORT = '3000' } = process.env;
const response = await fetch(HEALTH_URL ?? `http://127.0.0.1:${PORT}/api/health`).catch(() => undefined);
process.exit(response?.ok ? 0 : 1);
