// Name a folder with the official TypeScript client and print what the first two replies of a server say.
// Usage: node folders.mjs legacy|modern URI DIRECTORY COMMAND ARGUMENT…; the answers are the ones folders.py gives.
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [era, uri, cwd, command, ...args] = process.argv.slice(2);
const versionNegotiation = { mode: era === 'modern' ? { pin: '2026-07-28' } : 'legacy' };
const client = new Client({ name: 'judge', version: '1' }, { capabilities: { roots: {} }, versionNegotiation });
client.setRequestHandler('roots/list', async () => ({ roots: [{ uri }] }));
await client.connect(new StdioClientTransport({ command, args, cwd, stderr: 'inherit' }));
const said = [];
for (const _ of [1, 2]) {
  const result = await client.callTool({ name: 'evaluate-python', arguments: { code: 'import os; os.getcwd()' } });
  said.push(result.content.map(block => block.text));
}
await client.close();
console.log(JSON.stringify(said));
