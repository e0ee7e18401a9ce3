// The AI SDK with its openai-compatible provider: generateText, streamText, a completion model, giving up.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import {
  KEY, LATE_FAILURE, LONG_ANSWER, MODEL, SCRIPTED, TINY, TINY_MODEL, TOO_LONG, WORDS,
  errorOf, middleOf, print,
} from "./cases.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false; // a completion model has no tools, which it says each time
const provider = (baseURL, apiKey) =>
  createOpenAICompatible({ name: "neuroscope", baseURL, apiKey, includeUsage: true });
const scripted = provider(SCRIPTED, KEY);
const real = provider(TINY, "none")(TINY_MODEL);
const common = { maxRetries: 0 };
const ask = (prompt, more = {}) => ({ ...common, model: scripted(MODEL), prompt, ...more });
const askReal = (more = {}) => ({
  ...common, model: real, prompt: "hello", temperature: 1, maxOutputTokens: 24, ...more,
});

const usageOf = (usage) => [usage.inputTokens, usage.outputTokens, usage.totalTokens];
const answer = ({ text, finishReason, usage }) => ({ text, reason: finishReason, usage: usageOf(usage) });
const streamed = async (settings) => {
  let failed;
  const result = streamText({ ...settings, onError: ({ error }) => { failed = error; } });
  let text = "";
  for await (const piece of result.textStream) text += piece;
  if (failed) throw failed;
  return { text, reason: await result.finishReason, usage: usageOf(await result.usage) };
};
const failure = async (call) => {
  const error = await errorOf(call);
  const body = error.data?.error ?? {};
  return { kind: error.name, status: error.statusCode, code: body.code, param: body.param, message: error.message };
};

const said = {};
said.whole = answer(await generateText(ask(WORDS)));
said.streamed = await streamed(ask(WORDS));
said.limited = answer(await generateText(ask(WORDS, { maxOutputTokens: 2 })));
const completing = ask(WORDS, { model: scripted.completionModel(MODEL), maxOutputTokens: 9 });
said.completions = [answer(await generateText(completing)), await streamed(completing)];

said["wrong key"] = await failure(() =>
  generateText(ask(WORDS, { model: provider(SCRIPTED, "wrong")(MODEL) })));
said["wrong model"] = await failure(() => generateText(ask(WORDS, { model: scripted("gpt-4o") })));
said["too long"] = await failure(() => streamed(ask(TOO_LONG)));
const errors = [];
await streamText({ ...ask(LATE_FAILURE), onError: ({ error }) => errors.push(error) }).consumeStream();
said["late failure"] = { message: errors.map((error) => error.message ?? String(error)).join() };

const controller = new AbortController();
const parts = streamText(ask(LONG_ANSWER, { abortSignal: controller.signal })).fullStream;
for await (const part of parts) if (part.type === "text-delta") controller.abort();

const seeded = { seed: 7 };
const whole = (await generateText(askReal(seeded))).text;
said.seeds = [
  whole, (await streamed(askReal(seeded))).text, (await generateText(askReal({ seed: 8 }))).text,
];
const stop = middleOf(whole);
const stopping = askReal({ ...seeded, stopSequences: [stop] });
said.stopped = [whole, stop, (await generateText(stopping)).text, (await streamed(stopping)).text];
said.systems = [
  (await generateText(askReal())).usage.inputTokens,
  (await generateText(askReal({ system: "be kind" }))).usage.inputTokens,
];
print(said);
