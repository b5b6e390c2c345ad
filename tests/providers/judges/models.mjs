// A server that plays models, in both formats and with every fault, from aimock. Prints its address; ends with stdin.
import { LLMock } from "@copilotkit/aimock";

const mock = new LLMock({ port: 0, chunkSize: 4 });
const two = [
  { id: "call_1", name: "sayHello", arguments: JSON.stringify({ name: "Ada Lovelace" }) },
  { id: "call_2", name: "add", arguments: JSON.stringify({ a: 1, b: 2, why: "né ☃ 😀" }) },
];
const usage = { prompt_tokens: 11, completion_tokens: 7, input_tokens: 11, output_tokens: 7 };

mock.on({ userMessage: "plain" }, { content: "Hello, Ada! Nice to meet you. ☃", usage });
mock.on({ userMessage: "parallel", hasToolResult: true }, { content: "Done.", usage });
mock.on({ userMessage: "parallel" }, { toolCalls: two, usage });
mock.on({ userMessage: "both" }, { content: "Let me see. ", toolCalls: two.slice(0, 1), usage });
for (const [word, status] of [["limited", 429], ["broken", 500], ["busy", 529]]) {
  const error = { message: `no ${status}`, type: "x" };
  // The SDKs wait as long as they are told, and so do we: a tenth of a second would be rounded to nothing.
  mock.on({ userMessage: word, sequenceIndex: 0 }, { error, status, retryAfter: 1 });
  mock.on({ userMessage: word }, { content: `after ${status}`, usage });
}
mock.on({ userMessage: "denied" }, { error: { message: "bad key", type: "authentication_error" }, status: 401 });
mock.on({ userMessage: "unknown" }, { error: { message: "no such model", type: "not_found_error" }, status: 404 });
// Without latency the connection is gone before anything was sent.
mock.on({ userMessage: "cut text" }, { content: "This text will be cut somewhere here" }, { truncateAfterChunks: 4, latency: 40 });
mock.on({ userMessage: "cut call" }, { toolCalls: two }, { truncateAfterChunks: 6, latency: 40 });
mock.on({ userMessage: "malformed" }, { toolCalls: [{ id: "call_1", name: "sayHello", arguments: '{"name": "Ada' }], usage });
mock.on({ userMessage: "slow" }, { content: "slow words come late", usage }, { streamingProfile: { ttft: 300, tps: 20 } });
await mock.start();
console.log(mock.url);
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
