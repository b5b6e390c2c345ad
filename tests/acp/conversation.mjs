// The official client drives an agent through a whole conversation and prints what it saw, as JSON.
// Arguments: a directory to work in, then the command of the agent.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [cwd, ...command] = process.argv.slice(2);
const m = acp.methods;
const seen = { frames: [], permissions: [], forms: [], updates: [], answers: {} };
const answers = ["once", "reject", "edit", null];
const form = { action: "accept", content: { text: "a little" } };
let withheld = () => {};

async function connected(work) {
  const child = spawn(command[0], command.slice(1), { cwd, stdio: ["pipe", "pipe", "inherit"] });
  const exited = new Promise((resolve) => child.on("exit", resolve));
  let rest = "";
  child.stdout.on("data", (chunk) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    seen.frames.push(...lines.map((line) => JSON.parse(line)));
  });
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  const app = acp
    .client({ name: "judge" })
    .onNotification(m.client.session.update, ({ params }) => void seen.updates.push(params.update))
    .onRequest(m.client.fs.readTextFile, ({ params }) => ({ content: `unsaved ${params.path}` }))
    .onRequest(m.client.elicitation.create, ({ params }) => (seen.forms.push(params), form))
    .onRequest(m.client.session.requestPermission, ({ params }) => {
      seen.permissions.push(params);
      const optionId = answers.shift();
      if (optionId) return { outcome: { outcome: "selected", optionId } };
      // As the protocol wants it: whoever cancels answers the open questions so.
      return new Promise((resolve) => {
        withheld = () => resolve({ outcome: { outcome: "cancelled" } });
        seen.asked?.();
      });
    });
  try {
    return await app.connectWith(stream, work);
  } finally {
    child.stdin.end();
    seen.answers.exit = await exited;
  }
}

const refused = (promise) => promise.then(() => null, (error) => ({ code: error.code, message: error.message }));
const said = (sessionId, ...prompt) => ({ sessionId, prompt });
const text = (words) => ({ type: "text", text: words });
const capabilities = { fs: { readTextFile: true, writeTextFile: true }, elicitation: { form: {} } };
const greet = (ctx) =>
  ctx.request(m.agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: capabilities });

const sessionId = await connected(async (ctx) => {
  seen.answers.initialize = await greet(ctx);
  const made = await ctx.request(m.agent.session.new, { cwd, mcpServers: [] });
  seen.answers.new = made;
  const id = made.sessionId;
  const link = { type: "resource_link", uri: `file://${cwd}/notes`, name: "notes" };
  seen.answers.hunks = await ctx.request(m.agent.session.prompt, said(id, text("shout "), link));
  seen.answers.edited = await ctx.request(m.agent.session.prompt, said(id, text("erase")));
  const asked = new Promise((resolve) => (seen.asked = resolve));
  const waiting = ctx.request(m.agent.session.prompt, said(id, text("erase more")));
  await asked;
  seen.answers.second = await refused(ctx.request(m.agent.session.prompt, said(id, text("hurry"))));
  await ctx.notify(m.agent.session.cancel, { sessionId: id });
  withheld();
  seen.answers.cancelled = await waiting;
  seen.answers.mode = await ctx.request(m.agent.session.setMode, { sessionId: id, modeId: "plan" });
  seen.answers.planned = await ctx.request(m.agent.session.prompt, said(id, text("erase all")));
  seen.answers.unknown = await refused(ctx.request(m.agent.session.prompt, said("nobody", text("hello"))));
  return id;
});
seen.live = seen.updates.length;

await connected(async (ctx) => {
  await greet(ctx);
  seen.answers.list = await ctx.request(m.agent.session.list, { cwd });
  seen.answers.load = await ctx.request(m.agent.session.load, { sessionId, cwd, mcpServers: [] });
  seen.loaded = seen.updates.length;
  seen.answers.resume = await ctx.request(m.agent.session.resume, { sessionId, cwd });
  seen.answers.close = await ctx.request(m.agent.session.close, { sessionId });
  seen.answers.delete = await ctx.request(m.agent.session.delete, { sessionId });
  seen.answers.gone = await ctx.request(m.agent.session.list, { cwd });
});
console.log(JSON.stringify(seen));
process.exit(0);
