// Shows the OpenAPI document of the running service.
globalThis.SwaggerUIBundle({
  url: '/api/openapi.json',
  dom_id: '#docs',
  deepLinking: true,
  filter: true,
  persistAuthorization: false,
  tryItOutEnabled: true,
  docExpansion: 'none',
});
