// Talk to a server with the official TypeScript client and print what it said, as one JSON object.
// Usage: node conversation.mjs legacy|modern URL | COMMAND ARGUMENT…; the answers are the ones conversation.py gives.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [era, target, ...rest] = process.argv.slice(2);
const versionNegotiation = { mode: era === 'modern' ? { pin: '2026-07-28' } : 'legacy' };
const open = () =>
  target.startsWith('http')
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args: rest, stderr: 'inherit' });

let answer = fields => ({ action: 'accept', content: Object.fromEntries(fields.map(field => [field, 'Alice'])) });
let noticed;
const changed = new Promise(resolve => (noticed = resolve));
const client = new Client(
  { name: 'judge', version: '1' },
  {
    capabilities: { elicitation: {}, sampling: {}, roots: {} },
    versionNegotiation,
    listChanged: { tools: { onChanged: (error, tools) => noticed(tools), debounceMs: 0 } },
  },
);
client.setRequestHandler('elicitation/create', async ({ params }) =>
  answer(Object.keys(params.requestedSchema.properties)),
);
client.setRequestHandler('sampling/createMessage', async () => ({
  role: 'assistant',
  content: { type: 'text', text: 'Paris' },
  model: 'judge',
  stopReason: 'endTurn',
}));
client.setRequestHandler('roots/list', async () => ({ roots: [{ uri: 'file:///home', name: 'home' }] }));
await client.connect(open());

const call = (name, args = {}, options) => client.callTool({ name, arguments: args }, options);
const text = result => result.content.map(block => block.text ?? block.mimeType ?? block.resource?.text ?? '').join('|');
const refused = promise => promise.then(() => null, error => ({ code: error.code, message: error.message }));
const dangerous = async (reply, asked = client) => {
  answer = () => reply;
  const result = await asked.callTool({ name: 'test_dangerous_tool', arguments: { what: 'the moon' } });
  return [result.isError ?? false, text(result)];
};
const progress = [];
const said = {
  version: client.getNegotiatedProtocolVersion(),
  tools: (await client.listTools()).tools.map(tool => tool.name),
  text: text(await call('test_simple_text')),
  picture: text(await call('test_image_content')),
  mixed: (await call('test_multiple_content_types')).content.map(block => block.type),
  failed: (await call('test_error_handling')).isError,
  invalid: (await call('test_sampling', { prompt: 7 })).isError,
  unknown: await refused(call('no_such_tool')),
  greeting: text(await call('test_input_required_result_elicitation')),
  capital: text(await call('test_input_required_result_sampling')),
  roots: text(await call('test_input_required_result_list_roots')),
  rounds: text(await call('test_input_required_result_multi_round')),
  worked: text(await call('test_tool_with_progress', {}, { onprogress: step => progress.push(step.progress) })),
  progress,
  resource: (await client.readResource({ uri: 'test://static-text' })).contents[0].text,
  template: (await client.readResource({ uri: 'test://template/7/data' })).contents[0].text,
  missing: await refused(client.readResource({ uri: 'test://nowhere' })),
  prompt: (await client.getPrompt({ name: 'test_prompt_with_arguments', arguments: { arg1: 'a', arg2: 'b' } })).messages[0]
    .content.text,
  completion: (
    await client.complete({
      ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' },
      argument: { name: 'arg1', value: 'pa' },
    })
  ).completion.values,
  approved: await dangerous({ action: 'accept', content: { decision: 'approve' } }),
  denied: await dangerous({ action: 'accept', content: { decision: 'deny', reason: 'it is full' } }),
  declined: await dangerous({ action: 'decline' }),
  dismissed: await dangerous({ action: 'cancel' }),
};
await call('test_trigger_tool_change');
said.noticed = (await changed).some(tool => tool.name === 'test_changing_tool');
await client.close();

const mute = new Client({ name: 'judge', version: '1' }, { versionNegotiation });
await mute.connect(open());
said.unasked = await dangerous(null, mute);
await mute.close();
console.log(JSON.stringify(said));
