// Reads a recording (neuroscope/recording): checked first, because a file may be cut short, foreign or made to do
// harm. What a reader sees of it is a Completion, as the live page has one.

import { FILTERS, select } from "./ranking.js";

export const MAX_BYTES = 64_000_000;

const FORMAT = "neuroscope-recording";
const VERSION = 1;
const MAX_TOKENS = 100_000;
const MAX_TITLE = 200;
const MAX_WIDTH = 2 ** 24;
const ID_LIMIT = 2 ** 31; // of a whole number
const LARGEST = 3.4e38; // of a 32-bit float, as which activations are stored
const FINISHED = ["stop", "length", "cancelled", "shutdown"];
const FORMS = {
  id: [/^[a-z0-9][a-z0-9-]{0,63}$/, "small letters, digits and hyphens, 64 at most"],
  completion_id: [/^[A-Za-z0-9_-]{1,64}$/, "the id of an answer"],
  created_at: [/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$/, "a time such as 2026-01-31T09:00:00Z"],
};
const REMEDY = "Make one with `neuroscope record PROMPT`, or with Save on the live page.";

// `message` is for people: what is wrong with which file, and what to do.
export class RecordingError extends Error {}

// The recording in a File or Blob of the reader's disk. Throws RecordingError.
export async function readFile(file) {
  if (file.size > MAX_BYTES) {
    throw new RecordingError(`${file.name} has ${Math.ceil(file.size / 1e6)} MB; a recording has ${MAX_BYTES / 1e6} MB at most.`);
  }
  let text;
  try {
    text = await file.text();
  } catch {
    throw new RecordingError(`${file.name} cannot be read: it is a folder, or was moved or changed.`);
  }
  return parseRecording(text, file.name);
}

// `name` is where the text came from. Throws RecordingError.
export function parseRecording(text, name) {
  let document;
  try {
    document = JSON.parse(text.startsWith("\ufeff") ? text.slice(1) : text);
  } catch {
    throw new RecordingError(`${name} is not JSON, or cut short. ${REMEDY}`);
  }
  return checkRecording(document, name);
}

// The same document when it is a whole recording. Throws RecordingError.
export function checkRecording(document, name) {
  if (!isObject(document) || document.format !== FORMAT) throw new RecordingError(`${name} is no recording: it lacks "format": "${FORMAT}". ${REMEDY}`);
  if (document.version !== VERSION) {
    throw new RecordingError(`${name} is a recording of version ${quoted(document.version)}; this page reads ${VERSION}. Record it anew, or open it with the version that wrote it.`);
  }
  const wrong = fault(document);
  if (wrong) throw new RecordingError(`${name} is no whole recording: ${wrong}. ${REMEDY}`);
  return document;
}

// As a reader with this `ranking` ({ filter, threshold, topK, minActivation }) sees it.
export function completionOf(recording, ranking) {
  const rateOf = (index) => recording.features[index]?.firing_rate ?? null;
  const labelOf = (index) => recording.features[index]?.label ?? `feature_${index}`;
  const shownAs = (place) => (token, n) => {
    const { shown, filteredCount } = select(token.top_features, ranking, rateOf);
    return {
      place,
      index: place === "answer" ? token.token_index : n,
      position: token.position,
      token: token.token,
      token_id: token.token_id,
      content: place === "answer" || token.content,
      l0: token.l0,
      fvu: token.fvu,
      features: shown.map(([index, activation, surprise]) => ({ index, label: labelOf(index), activation, surprise })),
      filtered_count: filteredCount,
      others: { get: (index) => token.top_features.find((triple) => triple[0] === index)?.[1] },
      whole: true, // a recording has every active feature
    };
  };
  return {
    id: recording.completion_id,
    model: recording.model,
    layer: recording.layer,
    prompt: recording.prompt.map(shownAs("prompt")),
    tokens: recording.tokens.map(shownAs("answer")),
    finish_reason: recording.finish_reason,
    gaps: [],
  };
}

// How the server showed features when it was recorded.
export function rankingOf(recording) {
  const { filter, threshold, top_k: topK } = recording.ranking;
  return { filter, threshold, topK, minActivation: 0 };
}

// What is wrong with the document, in words with its place; null for a whole one.
function fault(document) {
  for (const name of ["id", "created_at", "title", "model", "pairing", "sae_id", "completion_id", "finish_reason"]) {
    if (typeof document[name] !== "string") return `'${name}' is ${quoted(document[name])}; it must be a text`;
  }
  for (const [name, [form, words]] of Object.entries(FORMS)) if (!form.test(document[name])) return `'${name}' is ${quoted(document[name])}; it must be ${words}`;
  if ([...document.title].length > MAX_TITLE) return `'title' has ${[...document.title].length} characters; ${MAX_TITLE} are read at most`;
  if (!FINISHED.includes(document.finish_reason)) return `'finish_reason' is ${quoted(document.finish_reason)}; it must be one of ${FINISHED.join(", ")}`;
  for (const name of ["layer", "width", "total_tokens"]) {
    if (!isWhole(document[name])) return `'${name}' is ${quoted(document[name])}; it must be a whole number`;
  }
  if (document.width < 1 || document.width > MAX_WIDTH || document.layer >= 10_000) return `'width' is ${quoted(document.width)} and 'layer' ${quoted(document.layer)}; no SAE has them`;
  if (!Array.isArray(document.degraded) || document.degraded.length > 100 || !document.degraded.every((text) => typeof text === "string")) return "'degraded' is no list of texts";
  return fingerprintFault(document.fingerprint) ?? rankingFault(document.ranking) ?? messagesFault(document.messages) ?? featuresFault(document.features, document.width)
    ?? tokensFault(document, "prompt") ?? tokensFault(document, "tokens") ?? (document.tokens.length ? null : "'tokens' is empty")
    ?? (document.total_tokens > document.tokens.length ? `'total_tokens' is ${document.total_tokens} and there are ${document.tokens.length} tokens` : null);
}

function fingerprintFault(fingerprint) {
  const isText = (name) => typeof fingerprint[name] === "string";
  const whole = isObject(fingerprint) && ["model", "tokenizer_sha256", "sae_sha256", "input_norm"].every(isText)
    && ["layer", "d_in", "d_sae", "schema_version"].every((name) => isWhole(fingerprint[name]))
    && (isText("model_revision") || (fingerprint.model_revision ?? null) === null);
  return whole ? null : `'fingerprint' is ${quoted(fingerprint)}`;
}

function rankingFault(ranking) {
  const whole = isObject(ranking) && FILTERS.includes(ranking.filter) && isNumber(ranking.threshold) && ranking.threshold >= 0 && ranking.threshold <= 1 && isWhole(ranking.top_k);
  return whole ? null : `'ranking' is ${quoted(ranking)}`;
}

function messagesFault(messages) {
  if (messages === null || messages === undefined) return null;
  const whole = Array.isArray(messages) && messages.every((m) => isObject(m) && typeof m.role === "string" && typeof m.content === "string");
  return whole ? null : "'messages' must be null or a list of role and content";
}

function featuresFault(features, width) {
  if (!isObject(features)) return `'features' is ${quoted(features)}; it must be an object`;
  for (const [name, row] of Object.entries(features)) {
    if (!/^(0|[1-9][0-9]{0,8})$/.test(name) || Number(name) >= width) return `'features' has ${quoted(name)}; the SAE has features 0 to ${width - 1}`;
    if (!isObject(row) || typeof row.label !== "string" || !isMaybeNumber(row.firing_rate) || row.firing_rate < 0 || row.firing_rate > 1) return `'features.${name}' is ${quoted(row)}`;
  }
  return null;
}

function tokensFault(document, name) {
  const tokens = document[name];
  if (!Array.isArray(tokens) || tokens.length > MAX_TOKENS) return `'${name}' must be a list of ${MAX_TOKENS} at most`;
  for (const [n, token] of tokens.entries()) {
    const place = `${name}[${n}]`;
    if (!isObject(token) || typeof token.token !== "string") return `${place} has no text`;
    for (const field of name === "tokens" ? ["token_index", "token_id", "position", "l0"] : ["token_id", "position", "l0"]) {
      if (!isWhole(token[field])) return `'${place}.${field}' is ${quoted(token[field])}; it must be a whole number`;
    }
    if (name === "prompt" && typeof token.content !== "boolean") return `'${place}.content' is ${quoted(token.content)}; it must be true or false`;
    if (!isMaybeNumber(token.fvu)) return `'${place}.fvu' is ${quoted(token.fvu)}; it must be a number or null`;
    if (!Array.isArray(token.top_features)) return `'${place}.top_features' is ${quoted(token.top_features)}; it must be a list`;
    for (const triple of token.top_features) {
      if (!isTriple(triple)) return `'${place}.top_features' holds ${quoted(triple)}; it must be [index, activation above 0, surprise or null]`;
      if (!Object.hasOwn(document.features, triple[0])) return `${place} names feature ${triple[0]}, which 'features' does not have`;
    }
    if (token.l0 !== new Set(token.top_features.map(([index]) => index)).size || token.l0 !== token.top_features.length) {
      return `${place} has l0 ${token.l0} and ${token.top_features.length} features; each must be there, once`;
    }
  }
  return null;
}

function isTriple(triple) {
  return Array.isArray(triple) && triple.length === 3 && isWhole(triple[0]) && isNumber(triple[1]) && triple[1] > 0 && isMaybeNumber(triple[2]);
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isWhole(value) {
  return Number.isSafeInteger(value) && value >= 0 && value < ID_LIMIT;
}

function isNumber(value) {
  return Number.isFinite(value) && Math.abs(value) <= LARGEST;
}

function isMaybeNumber(value) {
  return value === null || isNumber(value);
}

function quoted(value) {
  const text = value === undefined ? "absent" : JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
