// Two recordings, texts or conversations side by side. What is compared stands in the address, files excepted.

import { postJson } from "./api.js";
import { createDiffTable } from "./diff_table.js";
import { createDiffTokens } from "./diff_tokens.js";
import { createSide } from "./diff_side.js";
import { byId, h, replace } from "./dom.js";
import { count, figure, percent } from "./format.js";
import { FILTERS } from "./ranking.js";
import { startShell } from "./shell.js";

const MAX_BYTES = 16_000_000; // of two files together: what the server reads at once
const MAX_ADDRESS = 6_000;
const DEFAULTS = { filter: "frequency_surprise", threshold: "", top_k: "50", min_activation: "0" };
const CHOICES = {
  filter: () => h("select", { name: "filter" }, FILTERS.map((name) => h("option", { value: name }, name.replace("_", ", ")))),
  threshold: () => h("input", { name: "threshold", type: "number", min: 0, max: 1, step: "any", placeholder: "default" }),
  top_k: () => h("input", { name: "top_k", type: "number", min: 1, max: 1000, step: 1, required: true }),
  min_activation: () => h("input", { name: "min_activation", type: "number", min: 0, step: "any", required: true }),
};
const NAMES = { filter: "Filter", threshold: "Firing rate at most", top_k: "Features", min_activation: "Activation at least" };

startShell().catch(() => null); // recordings are compared without a model
let asked = null; // the request on its way; a newer one ends it

const sides = { a: createSide("a"), b: createSide("b") };
const choices = Object.fromEntries(Object.entries(CHOICES).map(([name, make]) => [name, make()]));
const result = h("div", { class: "result" });
const form = h("form", { onsubmit: (event) => { event.preventDefault(); submit(); } },
  h("div", { class: "sides" }, sides.a.element, sides.b.element),
  h("div", { class: "controls panel" }, Object.entries(choices).map(([name, input]) => h("label", {}, NAMES[name], input)),
    h("button", { class: "main" }, "Compare"), h("button", { type: "button", onclick: swap }, "Swap A and B")));
replace(byId("main"), h("h1", {}, "Compare two answers or texts"), form, result);
window.addEventListener("popstate", restore);
restore();

// The form as the address says, and the comparison when both sides are there.
function restore() {
  const words = new URLSearchParams(location.search);
  for (const [name, input] of Object.entries(choices)) input.value = words.get(name) ?? DEFAULTS[name];
  if (choices.filter.value === "") choices.filter.value = DEFAULTS.filter;
  const isWhole = ["a", "b"].map((letter) => sides[letter].restore(words)).every(Boolean);
  replace(result);
  if (isWhole) compare();
}

function submit() {
  const words = new URLSearchParams();
  for (const letter of ["a", "b"]) for (const [name, value] of sides[letter].words()) words.set(name, value);
  for (const [name, input] of Object.entries(choices)) if (input.value !== DEFAULTS[name]) words.set(name, input.value);
  const address = `${location.pathname}${words.size ? `?${words}` : ""}`;
  if (address.length < MAX_ADDRESS && address !== `${location.pathname}${location.search}`) history.pushState(null, "", address);
  compare();
}

function swap() {
  const [a, b] = [sides.a.state(), sides.b.state()];
  sides.a.set(b);
  sides.b.set(a);
  if (result.childElementCount) submit();
}

async function compare() {
  asked?.abort();
  const mine = new AbortController();
  asked = mine;
  result.setAttribute("aria-busy", "true");
  replace(result, h("p", { class: "quiet", role: "status" }, "Comparing …"));
  try {
    const found = await postJson("/v1/diff", body(), { signal: mine.signal });
    if (mine === asked) show(found);
  } catch (error) {
    if (mine !== asked || error.name === "AbortError") return;
    replace(result, h("div", { class: "notice bad", role: "alert" }, error.message));
    if (error.status === 503) result.append(h("button", { type: "button", onclick: compare }, "Try again"));
  } finally {
    if (mine === asked) result.removeAttribute("aria-busy");
  }
}

function body() {
  const wanted = { a: sides.a.asked(), b: sides.b.asked(), filter: choices.filter.value };
  for (const name of ["threshold", "top_k", "min_activation"]) if (choices[name].value !== "") wanted[name] = choices[name].valueAsNumber;
  const bytes = sides.a.bytes() + sides.b.bytes();
  if (bytes > MAX_BYTES) throw new Error(`The files have ${count(bytes)} bytes together, and ${count(MAX_BYTES)} are compared at most. Save the longer one on the server and choose it as a session.`);
  return wanted;
}

function show(found) {
  const tokens = createDiffTokens(found);
  const table = createDiffTable(found);
  const { counts, ranking } = found;
  const differing = counts.appears + counts.vanishes + counts.stronger + counts.weaker;
  const hidden = [
    found.filtered_count ? `${count(found.filtered_count)} ${found.filtered_count === 1 ? "that fires" : "that fire"} on more than ${percent(ranking.threshold)} of all tokens ${found.filtered_count === 1 ? "is" : "are"} left out` : null,
    differing > found.features.length ? `the first ${count(found.features.length)} are shown` : null,
  ].filter(Boolean);
  replace(result,
    h("h2", {}, differing === 1 ? "1 feature differs" : differing ? `${count(differing)} features differ` : "No feature differs"),
    h("p", { class: "quiet summary-words", role: "status" }, `${count(counts.alike)} more ${counts.alike === 1 ? "is" : "are"} alike: the summed activation differs by ${percent(found.change_threshold)} at most. `, hidden.length ? `Of those that differ, ${hidden.join("; ")}.` : null),
    found.is_whole ? null : h("div", { class: "notice" }, "The texts are too long and too much alike to be aligned throughout: only their common beginning and end are."),
    tokens.element, differing ? table.element : null,
    h("p", { class: "quiet" }, "Control tokens are in no figure. ", ranking.min_activation > 0 ? `Activations below ${figure(ranking.min_activation)} are not counted.` : null));
}
