// A box for any text: where the feature fires in it.

import { h, replace } from "./dom.js";
import { count, counted, figure, inText } from "./format.js";
import { activationsOf } from "./examples.js";
import { heatLine } from "./heat.js";

export function trySection(feature) {
  const field = h("textarea", { rows: 3, "aria-label": "Text", placeholder: "Any text. Ctrl and Enter try it." });
  const button = h("button", { class: "main", type: "submit" }, "Try it");
  const said = h("p", { class: "quiet", role: "status" });
  const result = h("div", { class: "tried" });
  const form = h("form", { class: "try" }, field, h("div", { class: "line" }, button, said), result);
  let asking = null;

  async function ask() {
    const text = field.value;
    if (!text) return field.focus();
    asking?.abort();
    const mine = (asking = new AbortController());
    said.textContent = "asking …";
    try {
      const tokens = await activationsOf(feature.feature, { text }, Infinity, mine.signal);
      if (mine !== asking) return;
      show(tokens);
    } catch (error) {
      if (mine !== asking) return;
      said.textContent = error.message;
    }
  }

  function show(tokens) {
    const read = tokens.filter((token) => token.content);
    const fired = read.filter((token) => token.value > 0);
    const largest = Math.max(0, ...fired.map((token) => token.value));
    const strongest = fired.find((token) => token.value === largest);
    said.textContent = fired.length === 0
      ? `Silent on ${read.length === 1 ? "its only token" : `all ${counted(read.length, "token")}`}.`
      : `Fires on ${count(fired.length)} of ${counted(read.length, "token")}, most on “${inText(strongest.text).trim().slice(0, 40)}”: ${figure(largest)}.`;
    replace(result, heatLine(read.map((token) => token.text), {
      values: read.map((token) => token.value), scale: Math.max(feature.max_activation ?? 0, largest), name: "Your text" }));
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  return h("section", { class: "panel", "aria-labelledby": "try-title" }, h("h2", { id: "try-title" }, "Try a text"), form);
}
