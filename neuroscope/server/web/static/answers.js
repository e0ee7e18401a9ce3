// The answers on the stream, newest last so that none moves, those of other clients too: each by its time, its id and how it begins.

import { h } from "./dom.js";
import { counted } from "./format.js";

const BEGINNING = 60;
const STATES = { running: "writing …", lost: "end not seen", failed: "failed" };
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

// createAnswers({ onchoose(completion), isOwn(completion) }) -> { element, update(completion), remove(completion), choose(id) }
export function createAnswers({ onchoose, isOwn }) {
  const follow = h("input", { type: "checkbox", checked: true });
  const empty = h("p", { class: "facts quiet" }, "None yet. Ask here, or from any other program: its answer appears too.");
  const list = h("ul", { class: "answer-list" });
  const element = h("section", { class: "panel answers", "aria-label": "Answers on the stream" },
    h("h2", {}, "Answers on the stream"), h("label", { class: "follow" }, follow, "show new ones as they begin"), empty, list);
  const rows = new Map();

  function row(completion) {
    const time = h("span", { class: "number" });
    const who = h("span", { class: "quiet" });
    const state = h("span", { class: "quiet state" });
    const text = h("bdi", { class: "beginning" });
    const button = h("button", { type: "button", onclick: () => onchoose(completion) },
      h("span", { class: "answer-head" }, time, who, state), h("code", {}, completion.id), text);
    const item = h("li", {}, button);
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
    list.append(item);
    if (isAtEnd) list.scrollTop = list.scrollHeight;
    empty.hidden = true;
    const made = { item, button, time, who, state, text, isWhole: false };
    rows.set(completion.id, made);
    return made;
  }

  return {
    element,
    get follows() {
      return follow.checked;
    },
    update(completion) {
      const made = rows.get(completion.id) ?? row(completion);
      made.time.textContent = completion.seen_at ? clock.format(completion.seen_at) : "earlier";
      made.who.textContent = isOwn(completion) ? "this page" : "another client";
      const tokens = counted(completion.tokens.length, "token");
      made.state.textContent = completion.state in STATES ? `${tokens}, ${STATES[completion.state]}` : `${tokens}, ${completion.finish_reason}`;
      if (!made.isWhole) {
        const beginning = completion.tokens.slice(0, BEGINNING).map((token) => token.token).join("").replace(/\s+/g, " ").trim();
        made.isWhole = beginning.length > BEGINNING || completion.tokens.length > BEGINNING;
        made.text.textContent = beginning.slice(0, 2 * BEGINNING);
      }
    },
    remove(completion) {
      rows.get(completion.id)?.item.remove();
      rows.delete(completion.id);
    },
    choose(id) {
      for (const [name, { button }] of rows) button.setAttribute("aria-current", name === id);
    },
  };
}
