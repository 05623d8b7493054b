import { once } from 'node:events';
import { Agent, createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { setImmediate as immediate } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { gracefulClose } from '../../src/process/graceful-close.ts';

/** A server, a client with one connection, and the responses that wait for the test. */
async function openServer() {
  const waiting: ServerResponse[] = [];
  const server = createServer();
  server.on('request', (req, res) => {
    if (req.url === '/wait') waiting.push(res);
    else res.end('done');
  });
  const close = gracefulClose(server);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const send = async (path: string, by: Agent | false = agent) => {
    const sent = request({ host: '127.0.0.1', port, path, agent: by }).end();
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    response.resume();
    await once(response, 'end');
    return { status: response.statusCode, connection: response.headers.connection, isReused: sent.reusedSocket };
  };
  return { server, port, close, send, waiting };
}

test('a request on an idle connection that arrives after the server began to close is answered', async () => {
  const { close, send } = await openServer();
  expect(await send('/')).toEqual({ status: 200, connection: 'keep-alive', isReused: false });
  const closed = close();
  expect(await send('/')).toEqual({ status: 200, connection: 'close', isReused: true });
  await closed;
});

test('a request that is running when the server begins to close is answered, and its connection is closed', async () => {
  const { server, close, send, waiting } = await openServer();
  const running = send('/wait');
  await once(server, 'request');
  const closed = close();
  for (const response of waiting) response.end('done');
  expect(await running).toEqual({ status: 200, connection: 'close', isReused: false });
  await closed;
});

test('new connections are refused as soon as the server begins to close', async () => {
  const { close, send } = await openServer();
  const closed = close();
  await expect(send('/', false)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  await closed;
});

test('an idle connection does not keep the server open', async () => {
  const { close, send } = await openServer();
  await send('/');
  await close();
});

test('a request that arrived while the process was busy is answered, though its connection was idle before', async () => {
  const { port, close } = await openServer();
  const client = connect(port, '127.0.0.1');
  await once(client, 'connect');
  const get = () => client.write('GET / HTTP/1.1\r\nHost: school\r\n\r\n');
  get();
  await once(client, 'data');
  const closed = close();
  // From here, the timers of the process come before the requests.
  await immediate();
  get();
  // Busy beyond the moment at which idle connections are closed.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_200);
  const [answer] = (await once(client, 'data')) as [Buffer];
  expect(answer.toString()).toMatch(/^HTTP\/1.1 200 OK\r\n(.*\r\n)*Connection: close\r\n/);
  await closed;
});
