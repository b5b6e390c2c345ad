// The official TypeScript SDK, its low-level server: `stdio`, or `http PORT [sessions]`.
// It is copied beside its node_modules, since a module finds its packages from where it lies.
import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';
import { Server, createMcpHandler } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

const count = Number(process.env.TOOLS ?? 1);
const inputSchema = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] };
const tools = Array.from({ length: count }, (_, number) => ({
  name: number ? `echo_${number}` : 'echo',
  description: 'Return the text.',
  inputSchema,
}));

const make = () => {
  const server = new Server({ name: 'node', version: '1' }, { capabilities: { tools: {} } });
  server.setRequestHandler('tools/list', () => ({ tools }));
  server.setRequestHandler('tools/call', ({ params }) => ({
    content: [{ type: 'text', text: params.arguments.text }],
  }));
  return server;
};

const withSessions = async () => {
  const { NodeStreamableHTTPServerTransport } = await import('@modelcontextprotocol/node');
  const transports = new Map();
  return async (request, response) => {
    let transport = transports.get(request.headers['mcp-session-id']);
    if (!transport) {
      transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        enableJsonResponse: true,
        onsessioninitialized: id => void transports.set(id, transport),
      });
      await make().connect(transport);
    }
    await transport.handleRequest(request, response);
  };
};

const withoutSessions = async () => {
  const { toNodeHandler } = await import('@modelcontextprotocol/node');
  return toNodeHandler(createMcpHandler(make, { responseMode: 'json' }));
};

const [, , transport, port, sessions] = process.argv;
if (transport === 'stdio') serveStdio(make);
else createServer(await (sessions ? withSessions() : withoutSessions())).listen(Number(port), '127.0.0.1');
