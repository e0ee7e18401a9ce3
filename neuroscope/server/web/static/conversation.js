// The chat box: what is asked, what was said before, sending and stopping. The answer's tokens themselves are the
// view's; of the chat's own chunks this keeps the text, which is shown where the features stream has none.

import { chat } from "./chat.js";
import { h } from "./dom.js";

// createConversation({ onbegin(id or null), ontext(id), onend(id, failed), onchoose(id) })
// -> { before, after, composer, isOwn(id), show(id), textOf(id), turnOf(id), ready(model), busy }
// `before` and `after` hold the turns before and after the answer that is shown.
export function createConversation({ onbegin, ontext, onend, onchoose }) {
  const before = h("div", { class: "turns" });
  const after = h("div", { class: "turns" });
  const turns = []; // { question, id, text, error, done }
  const own = new Set(); // ids of this page's answers, of earlier chats too
  let shown = null; // id
  let running = null; // AbortController

  const form = createComposer({ onsend: send, onstop: () => running?.abort(), onclear: clear });

  function messagesUntil(turn) {
    const { system } = form.settings();
    const messages = system ? [{ role: "system", content: system }] : [];
    for (const earlier of turns.slice(0, turns.indexOf(turn))) {
      if (earlier.text) messages.push({ role: "user", content: earlier.question }, { role: "assistant", content: earlier.text });
    }
    return [...messages, { role: "user", content: turn.question }];
  }

  async function send(question) {
    const turn = { question, id: null, text: "", error: null, messages: null };
    turns.push(turn);
    turn.messages = messagesUntil(turn);
    running = new AbortController();
    form.busy(true);
    onbegin(null);
    try {
      for await (const chunk of chat({ ...form.settings().options, messages: turn.messages }, running.signal)) {
        if (turn.id === null) begin(turn, chunk.id);
        const text = chunk.choices[0]?.delta?.content;
        if (!text) continue;
        turn.text += text;
        ontext(turn.id);
      }
    } catch (error) {
      if (error.name !== "AbortError") turn.error = error.message;
      else if (turn.id === null) turn.error = "Stopped before the answer began.";
    }
    running = null;
    form.busy(false);
    render();
    onend(turn.id, turn.error !== null);
  }

  function begin(turn, id) {
    turn.id = id;
    own.add(id);
    onbegin(id);
  }

  function clear() {
    running?.abort();
    turns.length = 0;
    onbegin(null);
  }

  // The tokens of the turn that is shown are the view's; of the others the text is enough.
  function render() {
    const at = turns.findIndex((turn) => turn.id !== null && turn.id === shown);
    const isHere = at >= 0 || shown === null;
    const split = at >= 0 ? at : turns.length - (turns.at(-1)?.id === null ? 1 : 0);
    before.replaceChildren(...(isHere ? [...turns.slice(0, split).flatMap(said), ...turns.slice(split, split + 1).map(asked)] : [other(shown)]));
    after.replaceChildren(...(isHere ? [...turns.slice(split, split + 1).map(failed), ...turns.slice(split + 1).flatMap(said)] : []).filter(Boolean));
  }

  const asked = (turn) => h("p", { class: "asked" }, h("span", { class: "unseen" }, "You: "), h("bdi", {}, turn.question));
  const failed = (turn) => turn.error && h("p", { class: "notice bad" }, turn.error);
  const said = (turn) => [asked(turn), failed(turn), turn.text && h("div", { class: "said" }, h("bdi", {}, turn.text),
    turn.id && h("button", { type: "button", class: "icon-text", onclick: () => onchoose(turn.id) }, "show its features"))].filter(Boolean);
  const other = (id) => h("p", { class: "other quiet" }, own.has(id) ? "An answer of an earlier chat: " : "An answer to another client: ", h("code", {}, id),
    turns.length > 0 && turns.at(-1).id && h("button", { type: "button", class: "icon-text", onclick: () => onchoose(turns.at(-1).id) }, "back to the conversation"));

  const turnOf = (id) => turns.find((turn) => turn.id === id) ?? null;
  return {
    before,
    after,
    composer: form.element,
    promptBox: form.promptBox,
    ready: form.ready,
    isOwn: (id) => own.has(id),
    turnOf,
    textOf: (id) => turnOf(id)?.text ?? "",
    get busy() {
      return running !== null;
    },
    show(id) {
      shown = id;
      render();
    },
  };
}

function createComposer({ onsend, onstop, onclear }) {
  const text = h("textarea", { rows: 2, placeholder: "The model is loading …", "aria-label": "Message", disabled: true });
  const button = h("button", { class: "main", disabled: true }, "Send");
  const stop = h("button", { type: "button", disabled: true, onclick: onstop }, "Stop");
  const fresh = h("button", { type: "button", onclick: onclear }, "New chat");
  const system = h("textarea", { rows: 2, "aria-label": "System prompt" });
  const temperature = h("input", { type: "number", min: 0, max: 2, step: "any", placeholder: "1" });
  const longest = h("input", { type: "number", min: 1, step: 1, placeholder: "no limit" });
  const seed = h("input", { type: "number", step: 1, placeholder: "any" });
  const prompt = h("input", { type: "checkbox" });
  let isReady = false;
  let isBusy = false;

  const fold = h("details", {}, h("summary", {}, "Settings of the answer"), h("div", { class: "fields" },
    h("label", { class: "wide" }, "System prompt", system), h("label", {}, "Temperature", temperature),
    h("label", {}, "Most tokens", longest), h("label", {}, "Seed", seed)));
  fold.addEventListener("invalid", () => { fold.open = true; }, true); // what is wrong has to be seen
  const element = h("form", { class: "composer", onsubmit: submit },
    h("div", { class: "composer-row" }, text, h("div", { class: "composer-buttons" }, button, stop)),
    h("div", { class: "composer-row" }, fold, h("label", {}, prompt, "prompt tokens too"), fresh));

  function submit(event) {
    event.preventDefault();
    if (!isReady || isBusy || text.value.trim() === "") return;
    const question = text.value;
    text.value = "";
    onsend(question);
  }

  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    element.requestSubmit();
  });

  function state() {
    text.disabled = !isReady;
    button.disabled = !isReady || isBusy;
    stop.disabled = !isBusy;
  }

  return {
    element,
    promptBox: prompt,
    ready(placeholder) {
      isReady = true;
      text.placeholder = placeholder;
      state();
    },
    busy(is) {
      isBusy = is;
      state();
    },
    settings() {
      const options = { neuroscope: { prompt_features: prompt.checked } };
      if (temperature.value !== "") options.temperature = Number(temperature.value);
      if (longest.value !== "") options.max_tokens = Number(longest.value);
      if (seed.value !== "") options.seed = Number(seed.value);
      return { system: system.value.trim(), options };
    },
  };
}
