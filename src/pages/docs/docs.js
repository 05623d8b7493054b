// Shows the document that the running service describes itself with.
globalThis.SwaggerUIBundle({
  url: '/api/openapi.json',
  dom_id: '#docs',
  deepLinking: true,
  filter: true,
  persistAuthorization: false,
  tryItOutEnabled: true,
  docExpansion: 'none',
});
