// How this page sees the stream: filter, threshold, top-k, least activation. For its own subscription only.

import { h } from "./dom.js";

const FILTERS = [["frequency", "without features that fire often"], ["frequency_surprise", "without frequent ones, by surprise"], ["surprise", "all, by surprise"], ["none", "all, by activation"]];
const WAIT_MS = 300;

// createControls(onchange(query)) -> { element, defaults(ranking) }
export function createControls(onchange) {
  const filter = h("select", {}, FILTERS.map(([name, text]) => h("option", { value: name }, text)));
  const threshold = number({ min: 0, max: 1, step: "any", title: "Largest firing rate that the filter keeps" });
  const topK = number({ min: 1, max: 1000, step: 1, title: "Features shown for a token at most" });
  const least = number({ min: 0, max: 1e9, step: "any", title: "Weaker activations are not shown" });
  const element = h("details", { class: "controls" }, h("summary", {}, "Features shown"),
    h("div", { class: "fields" },
      h("label", {}, "Filter", filter), h("label", {}, "fires on at most", threshold), h("label", {}, "top", topK), h("label", {}, "activation at least", least),
      h("p", { class: "facts quiet" }, "For this page only: the server and other readers keep their settings.")));
  let timer = null;
  let sent = "";

  function query() {
    return { filter: filter.value, threshold: threshold.value, top_k: topK.value, min_activation: least.value };
  }

  element.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (![threshold, topK, least].every((field) => field.reportValidity())) return;
      if (JSON.stringify(query()) === sent) return;
      sent = JSON.stringify(query());
      onchange(query());
    }, WAIT_MS);
  });

  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    element.open = false;
    element.firstChild.focus();
  });
  document.addEventListener("pointerdown", (event) => {
    if (!element.contains(event.target)) element.open = false;
  });

  return {
    element,
    // What the server does without being asked; what has been chosen here stays.
    defaults(ranking) {
      if (sent) return;
      filter.value = ranking.filter === "combined" ? "frequency" : ranking.filter;
      threshold.value = ranking.threshold;
      topK.value = ranking.top_k;
      least.value = ranking.min_activation ?? 0;
      sent = JSON.stringify(query());
    },
  };
}

function number(properties) {
  return h("input", { type: "number", required: true, inputmode: "decimal", ...properties });
}
