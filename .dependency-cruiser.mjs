/**
 * The architecture as rules: imports point down, never up, and never in a circle. `npm run check:imports` runs them.
 *
 *   process (src/main.ts, src/process), cli       start the service, read the environment
 *   pages                                         serve the console, the documentation and GraphQL
 *   endpoints                                     one file per resource
 *   http                                          router and its rooms (see `httpRooms`)
 *   workers  analytics                            background jobs, queries of analysts
 *   servers                                       several servers: nodes, moves of schools, the forwarder
 *   database  documents  timetable                one subject each; database has rooms (see `databaseRooms`)
 *   concurrency                                   thread pools, limits, queues
 *   domain                                        errors, money, files: imports nothing of the project
 */
const floors = [
  ['domain', '^src/domain/'],
  ['concurrency', '^src/concurrency/'],
  ['timetable', '^src/timetable/'],
  ['documents', '^src/documents/'],
  ['database', '^src/database/'],
  ['servers', '^src/servers/'],
  ['analytics', '^src/analytics/'],
  ['workers', '^workers/'],
  ['http', '^src/http/'],
  ['endpoints', '^src/endpoints/'],
  ['pages', '^src/pages/'],
  ['process', '^src/(process/|main[.]ts$)'],
  ['cli', '^src/cli/'],
];

/** What each layer may import, besides itself and packages. */
const allowed = {
  domain: [],
  concurrency: ['domain'],
  timetable: ['domain', 'concurrency'],
  documents: ['domain', 'concurrency', 'timetable'],
  database: ['domain', 'concurrency'],
  servers: ['domain', 'database'],
  analytics: ['domain', 'concurrency', 'database'],
  workers: ['domain', 'concurrency', 'database', 'servers', 'documents', 'analytics'],
  http: ['domain', 'concurrency', 'database', 'analytics'],
  endpoints: ['domain', 'concurrency', 'database', 'documents', 'timetable', 'analytics', 'http'],
  pages: ['domain', 'concurrency', 'analytics', 'http'],
  process: [
    'domain',
    'concurrency',
    'database',
    'servers',
    'documents',
    'timetable',
    'analytics',
    'workers',
    'http',
    'endpoints',
    'pages',
  ],
  cli: ['domain', 'concurrency', 'database', 'servers', 'analytics', 'http', 'endpoints', 'process'],
};

const paths = new Map(floors);

/** The rooms of src/http, and which other rooms each may import. All may import the files at its top, but the router. */
const httpRooms = {
  streams: [],
  credentials: [],
  body: [],
  limits: ['credentials'],
  openapi: ['body', 'credentials'],
};

const httpRoom = (...names) => `^src/http/(${names.join('|')})/`;

/** The rooms of src/database. Both may import the files at its top, which know nothing of migrations. */
const databaseRooms = { pool: [], migrate: ['pool'] };

const databaseRoom = (...names) => `^src/database/(${names.join('|')})/`;

/** @type {import('dependency-cruiser').IConfiguration} */
export default {
  forbidden: [
    { name: 'no-cycles', severity: 'error', from: {}, to: { circular: true } },
    ...floors.map(([name, path]) => ({
      name: `${name}-imports-only-floors-below`,
      severity: 'error',
      from: { path },
      to: {
        path: '^(src|workers|db|test|bench|docs)/',
        pathNot: [path, ...allowed[name].map((other) => paths.get(other))],
      },
    })),
    {
      name: 'every-folder-of-src-is-a-floor',
      comment: 'Add a new folder to `floors` and `allowed` above.',
      severity: 'error',
      from: { path: '^src/', pathNot: [...floors.map(([, path]) => path), '^src/console/'] },
      to: {},
    },
    ...Object.entries(httpRooms).map(([room, others]) => ({
      name: `http-${room}-imports-only-its-rooms`,
      severity: 'error',
      from: { path: httpRoom(room) },
      to: { path: '^src/http/(.+/|router[.]ts$)', pathNot: httpRoom(room, ...others) },
    })),
    {
      name: 'the-top-of-http-knows-no-openapi',
      comment: 'A request is served without the document. Pages and the command line ask for it.',
      severity: 'error',
      from: { path: '^src/http/[^/]+$' },
      to: { path: httpRoom('openapi') },
    },
    {
      name: 'every-folder-of-http-is-a-room',
      comment: 'Add a new folder to `httpRooms` above.',
      severity: 'error',
      from: { path: '^src/http/.+/', pathNot: httpRoom(...Object.keys(httpRooms)) },
      to: {},
    },
    ...Object.entries(databaseRooms).map(([room, others]) => ({
      name: `database-${room}-imports-only-its-rooms`,
      severity: 'error',
      from: { path: databaseRoom(room) },
      to: { path: '^src/database/.+/', pathNot: databaseRoom(room, ...others) },
    })),
    {
      name: 'the-top-of-database-knows-no-migrations',
      severity: 'error',
      from: { path: '^src/database/[^/]+$' },
      to: { path: databaseRoom('migrate') },
    },
    {
      name: 'every-folder-of-database-is-a-room',
      comment: 'Add a new folder to `databaseRooms` above.',
      severity: 'error',
      from: { path: '^src/database/.+/', pathNot: databaseRoom(...Object.keys(databaseRooms)) },
      to: {},
    },
    {
      name: 'console-is-a-browser-program',
      comment: 'The console may take types from the endpoints, and nothing that runs.',
      severity: 'error',
      from: { path: '^src/console/', pathNot: '^src/console/types[.]ts$' },
      to: { path: '^(src|workers|db|test|bench|docs)/', pathNot: '^src/console/' },
    },
    {
      name: 'product-imports-no-tests',
      severity: 'error',
      from: { path: '^(src|workers|db)/' },
      to: { path: '^(test|bench|docs|checks|scaffold)/' },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    exclude: { path: '^test/conformance/node_modules/' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: { extensions: ['.ts', '.tsx', '.mts', '.js', '.json'] },
  },
};
