// Texts on which a feature fires, by how strong its activation is among all its firings, as heat maps.
//
// Results hold the activation of the middle token only. The others are asked of the model, window by window, as they
// come into view: others' questions to the model go in between.

import { postJson } from "./api.js";
import { h, replace } from "./dom.js";
import { count, figure, inText } from "./format.js";
import { colour, heatLine } from "./heat.js";

const GROUPS = [[0.99, "The strongest 1% of firings"], [0.9, "From 90% to 99%"], [0.75, "From 75% to 90%"], [0.5, "From 50% to 75%"], [0.25, "From 25% to 50%"], [0, "The weakest quarter"]];
const KINDS = { top: "strongest", sample: "random", held_out: "held out" };
const ABOUT = {
  top: "strongest: the largest activations, one of each document",
  sample: "random: any of its firings",
  held_out: "held out: random over all strengths, from documents that no label was made from",
};
const SHOWN = 5; // of a group, before more are asked for
const BUSY_MS = 1000;

export function examplesSection(feature, fill = painter(feature)) {
  const kinds = Object.keys(KINDS).filter((kind) => feature.examples.some((row) => row.kind === kind));
  const chosen = new Set(kinds);
  const list = h("div", {});
  const draw = () => replace(list, groups(feature, chosen).map((group) => groupOf(group, feature, fill)));
  draw();
  const why = feature.firing_rate === 0 ? "There are none: it never fired in the texts that were read." : "There are none here.";
  return h("section", { "aria-labelledby": "examples-title" },
    h("h2", { id: "examples-title" }, "Examples"),
    kinds.length === 0 ? h("p", { class: "quiet" }, why) : [
      h("p", { class: "kinds" }, kinds.map((kind) => h("label", { title: ABOUT[kind] },
        h("input", { type: "checkbox", checked: true, onchange: (event) => { chosen[event.target.checked ? "add" : "delete"](kind); draw(); } }), KINDS[kind]))),
      h("p", { class: "quiet note" }, "The figure beside a text was measured on its framed token, with the whole document before it. The colours are computed now, from the window alone: the framed token may differ."),
      fill.problem, list]);
}

function groups(feature, kinds) {
  const share = quantiles(feature);
  const rows = once(feature.examples.filter((row) => kinds.has(row.kind))).sort((a, b) => b.activation - a.activation || a.rank - b.rank);
  if (!share) return [{ title: "By activation", rows }];
  const taken = GROUPS.map(([from, title]) => ({ from, title, rows: [] }));
  for (const row of rows) taken.find((group) => share(row.activation) >= group.from).rows.push(row);
  return taken.filter((group) => group.rows.length);
}

// A token that is an example of several kinds, once, with all of them.
function once(rows) {
  const found = new Map();
  for (const row of rows) {
    const place = `${row.position} ${row.doc_id}`;
    const before = found.get(place);
    if (before) before.kinds.push(row.kind);
    else found.set(place, { ...row, kinds: [row.kind] });
  }
  return [...found.values()];
}

// activation -> share of the feature's firings below it, by its histogram, even inside a bin on the log scale.
export function quantiles({ histogram, histogram_edges: edges, max_activation: largest }) {
  const total = histogram?.reduce((a, b) => a + b, 0) ?? 0;
  if (!total || !edges.length) return null;
  return (activation) => {
    const bin = edges.findLastIndex((edge) => edge <= activation) + 1;
    const below = histogram.slice(0, bin).reduce((a, b) => a + b, 0);
    const low = bin > 0 ? edges[bin - 1] : edges[0] / 2;
    const high = Math.max(low * 1.0001, Math.min(edges[bin] ?? Infinity, largest ?? Infinity));
    const part = Math.log(Math.max(activation, low) / low) / Math.log(high / low);
    return (below + Math.min(1, Math.max(0, part)) * histogram[bin]) / total;
  };
}

function groupOf({ title, rows }, feature, fill) {
  const list = h("ul", { class: "examples" }, rows.slice(0, SHOWN).map((row) => example(row, feature, fill)));
  const more = rows.length > SHOWN && h("button", { type: "button", onclick: () => {
    list.append(...rows.slice(SHOWN).map((row) => example(row, feature, fill)));
    list.children[SHOWN].querySelector(".heat").focus();
    more.remove();
  } }, `${count(rows.length - SHOWN)} more`);
  return h("div", { class: "group" }, h("h3", {}, title), list, more);
}

function example(row, feature, fill) {
  const line = heatLine(row.tokens, { centre: row.center, name: `Example, ${figure(row.activation)} on its framed token` });
  const scale = Math.max(feature.max_activation ?? 0, row.activation);
  colour(line, row.tokens.map((_, place) => (place === row.center ? row.activation : null)), scale);
  fill(line, row, scale);
  const about = `${row.kinds.map((kind) => KINDS[kind]).join(", ")} · ${inText(row.stratum)}`;
  return h("li", {}, h("div", { class: "measured" }, h("b", { class: "number" }, figure(row.activation)), h("small", { title: `document ${row.doc_id}, token ${row.position}` }, about)), line);
}

// Colours lines as they come into view, one question at a time; says once, in `problem`, why it cannot.
function painter(feature) {
  const problem = h("p", { class: "quiet", role: "status" });
  const known = new Map(); // window -> activations
  const waiting = [];
  const asked = new WeakMap();
  let isBusy = false;
  let isStopped = false;
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      const place = waiting.indexOf(target);
      if (isIntersecting && place < 0) waiting.push(target);
      if (!isIntersecting && place >= 0) waiting.splice(place, 1); // scrolled past meanwhile
    }
    work();
  }, { rootMargin: "150px" });

  async function work() {
    if (isBusy || isStopped) return;
    isBusy = true;
    while (waiting.length && !isStopped) await paint(waiting.shift());
    isBusy = false;
  }

  async function paint(line) {
    const { row, scale } = asked.get(line);
    const ids = row.window.filter((id) => id !== null);
    const key = ids.join();
    try {
      if (!known.has(key)) known.set(key, await activationsOf(feature.feature, { token_ids: ids }, ids.length));
      colour(line, known.get(key).map((token) => token.value), scale);
      seen.unobserve(line);
    } catch (error) {
      if (error.status === 429) { // the queue is full: later
        waiting.unshift(line);
        await new Promise((resolve) => setTimeout(resolve, BUSY_MS * (error.retryAfter ?? 1)));
        return;
      }
      isStopped = true;
      seen.disconnect();
      problem.textContent = `Only the framed tokens are coloured. ${error.message}`;
    }
  }

  return Object.assign((line, row, scale) => {
    asked.set(line, { row, scale });
    seen.observe(line);
  }, { problem });
}

// [{ text, value, content }] of the last `n` tokens of what POST /v1/features/encode reads.
export async function activationsOf(index, body, n = Infinity, signal = undefined) {
  const query = new URLSearchParams({ features: index, filter: "none", min_activation: 0, top_k: 1 });
  const { tokens } = await postJson(`/v1/features/encode?${query}`, body, { signal });
  return tokens.slice(Math.max(0, tokens.length - n))
    .map((token) => ({ text: token.token, value: token.top_features[0]?.activation ?? 0, content: token.content }));
}
