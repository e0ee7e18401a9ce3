// One of the two that are compared: a saved session, a file, a text or a question as the model reads it in a chat.

import { getJson } from "./api.js";
import { h } from "./dom.js";
import { fileButton, acceptDrop } from "./files.js";
import { moment } from "./format.js";
import { readFile } from "./recording.js";

const KINDS = { session: "Saved session", file: "Recording file", text: "Text", chat: "Chat prompt" };
const LISTED = 500;

let sessions = null; // one list for both sides

// createSide("a") -> { element, asked() for POST /v1/diff, bytes(), words() of the address, restore(words), state(), set(state) }
export function createSide(letter) {
  const name = letter.toUpperCase();
  let file = null; // { name, size, recording }
  const kind = h("select", { "aria-label": `What ${name} is`, onchange: show }, Object.entries(KINDS).map(([value, text]) => h("option", { value }, text)));
  const session = h("select", { "aria-label": `Session ${name}` });
  const text = h("textarea", { rows: 4, "aria-label": `Text ${name}`, dir: "auto" });
  const chosen = h("span", { class: "quiet" });
  const said = h("p", { class: "side-said bad", role: "status" });
  const fields = {
    session: h("div", {}, session),
    file: h("div", { class: "actions" }, fileButton(`Open file ${name} …`, open), chosen),
    text: h("div", {}, text),
  };
  const element = h("fieldset", { class: "panel side" }, h("legend", { class: `of-${letter}` }, name), kind, Object.values(fields), said);
  acceptDrop(element, open);
  fill();

  async function fill(id = session.value) {
    sessions ??= getJson("/v1/sessions", { limit: LISTED }).then((answer) => answer.sessions, (error) => error);
    const found = await sessions;
    const list = Array.isArray(found) ? found.filter((row) => !row.error) : [];
    const wanted = session.value || id;
    session.replaceChildren(h("option", { value: "" }, list.length ? "Choose …" : "No session is saved"),
      ...list.map((row) => h("option", { value: row.id }, `${row.title || "Untitled"} (${moment(row.created_at)})`)));
    choose(wanted);
    if (found instanceof Error && found.status !== 404) tell(found.message);
  }

  // An id that the list lacks can be named by the address all the same.
  function choose(id) {
    if (id && ![...session.options].some((option) => option.value === id)) session.append(h("option", { value: id }, id));
    session.value = id;
  }

  async function open(given) {
    kind.value = "file";
    show();
    file = null;
    chosen.textContent = `Reading ${given.name} …`;
    try {
      const recording = await readFile(given);
      file = { name: given.name, size: given.size, recording };
      chosen.textContent = `${file.name}: ${recording.title || "Untitled"}`;
    } catch (error) {
      chosen.textContent = "";
      tell(error.message);
    }
  }

  function tell(words) {
    said.textContent = words;
  }

  function show() {
    tell("");
    fields.session.hidden = kind.value !== "session";
    fields.file.hidden = kind.value !== "file";
    fields.text.hidden = kind.value !== "text" && kind.value !== "chat";
  }

  const side = {
    element,
    asked() {
      if (kind.value === "session" && session.value) return { session: session.value };
      if (kind.value === "file" && file) return { recording: file.recording };
      if (kind.value === "text" && text.value) return { text: text.value };
      if (kind.value === "chat" && text.value) return { messages: [{ role: "user", content: text.value }] };
      throw new Error(`${name} is missing: choose a session or a file, or write a text.`);
    },
    bytes: () => (kind.value === "file" && file ? file.size : 0),
    words() {
      if (kind.value === "session" && session.value) return [[letter, session.value]];
      if (kind.value === "text" || kind.value === "chat") return [[`${letter}_${kind.value}`, text.value]];
      return [];
    },
    // Whether the address names this side.
    restore(words) {
      const found = ["text", "chat"].find((one) => words.has(`${letter}_${one}`));
      kind.value = found ?? (file && !words.has(letter) ? "file" : "session");
      text.value = found ? words.get(`${letter}_${found}`) : "";
      choose(words.get(letter) ?? "");
      show();
      return Boolean(found ? text.value : words.get(letter));
    },
    state: () => ({ kind: kind.value, session: session.value, text: text.value, file, chosen: chosen.textContent }),
    set(state) {
      kind.value = state.kind;
      choose(state.session);
      text.value = state.text;
      file = state.file;
      chosen.textContent = state.chosen;
      show();
    },
  };
  show();
  return side;
}
