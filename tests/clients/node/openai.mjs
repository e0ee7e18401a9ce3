// The `openai` package for JavaScript: create, the streaming helper, models, completions, errors, giving up.
import OpenAI from "openai";
import {
  KEY, LATE_FAILURE, LONG_ANSWER, MODEL, SCRIPTED, TINY, TINY_MODEL, TOO_LONG, TOOL, WORDS,
  collect, errorOf, middleOf, print, user,
} from "./cases.mjs";

const client = new OpenAI({ baseURL: SCRIPTED, apiKey: KEY, maxRetries: 0 });
const ask = (content, more = {}, options = {}) =>
  client.chat.completions.create({ model: MODEL, messages: user(content), ...more }, options);
const real = new OpenAI({ baseURL: TINY, apiKey: "none", maxRetries: 0 });
const askReal = (messages, more = {}) =>
  real.chat.completions.create({ model: TINY_MODEL, messages, temperature: 1, max_tokens: 24, ...more });

const usageOf = (usage) => [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens];
const answer = ({ choices, usage }) =>
  ({ text: choices[0].message.content, reason: choices[0].finish_reason, usage: usageOf(usage) });
const textOf = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
const answerOf = (chunks) => ({
  text: textOf(chunks),
  reason: chunks.map((chunk) => chunk.choices[0]?.finish_reason).find(Boolean),
  usage: usageOf(chunks.at(-1).usage),
});
const failure = async (call) => {
  const error = await errorOf(call);
  const { status, code, param, message } = error;
  return { kind: error.constructor.name, status, code, param, message, request: error.requestID };
};

const said = {};
const streaming = { stream: true, stream_options: { include_usage: true } };
said.whole = answer(await ask(WORDS));
said.streamed = answerOf(await collect(await ask(WORDS, streaming)));
const helper = client.chat.completions.stream({ model: MODEL, messages: user(WORDS), ...streaming });
said.helper = answer(await helper.finalChatCompletion());
said.limited = answer(await ask(WORDS, { max_completion_tokens: 2 }));
said.heartbeats = textOf(await collect(await ask("[prefill=1] at last", { stream: true })));
const logprobs = (await ask(WORDS, { logprobs: true, top_logprobs: 1 })).choices[0].logprobs.content;
said.logprobs = logprobs.map((entry) => [entry.bytes, entry.top_logprobs.length]);
said.models = (await collect(await client.models.list())).map((model) => model.id);
said.model = (await client.models.retrieve(MODEL)).id;
const completion = await client.completions.create({ model: MODEL, prompt: WORDS, max_tokens: 9 });
said.completion = { text: completion.choices[0].text, usage: usageOf(completion.usage) };

said["wrong key"] = await failure(() =>
  client.withOptions({ apiKey: "wrong" }).chat.completions.create({ model: MODEL, messages: user(WORDS) }));
said["wrong model"] = await failure(() => ask(WORDS, { model: "gpt-4o" }));
said["too long"] = await failure(() => ask(TOO_LONG));
said["too many"] = await failure(() => ask(WORDS, { n: 2 }));
said.tools = await failure(() => ask(WORDS, { tools: [TOOL], tool_choice: "required" }));
said.responses = await failure(() => client.responses.create({ model: MODEL, input: WORDS }));
said["late failure"] = await failure(async () => collect(await ask(LATE_FAILURE, { stream: true })));

let seen = 0;
for await (const _ of await ask(LONG_ANSWER, { stream: true })) if (++seen === 4) break;
const controller = new AbortController();
const options = { signal: controller.signal };
for await (const _ of await ask(LONG_ANSWER, { stream: true }, options)) controller.abort();

const seeded = { seed: 7 };
const whole = (await askReal(user("hello"), seeded)).choices[0].message.content;
said.seeds = [
  whole,
  textOf(await collect(await askReal(user("hello"), { ...seeded, stream: true }))),
  (await askReal(user("hello"), { seed: 8 })).choices[0].message.content,
];
const stop = middleOf(whole);
said.stopped = [
  whole,
  stop,
  (await askReal(user("hello"), { ...seeded, stop })).choices[0].message.content,
  textOf(await collect(await askReal(user("hello"), { ...seeded, stop: [stop], stream: true }))),
];
const system = { role: "system", content: "be kind" };
said.systems = [
  (await askReal(user("hello"))).usage.prompt_tokens,
  (await askReal([system, ...user("hello")])).usage.prompt_tokens,
];
print(said);
