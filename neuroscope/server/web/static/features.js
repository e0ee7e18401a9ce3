// The browser of features: every feature of the SAE in one list, searched, filtered and sorted in this tab. What is
// asked for stands in the address, so that going back, keeping and sending it work.

import { byId, h, replace } from "./dom.js";
import { count, figure, inText, percent } from "./format.js";
import { LongList } from "./long_list.js";
import { startShell } from "./shell.js";
import { loadTable, SORTS, usualOrder } from "./table.js";

const LONGEST = 240; // characters of a label in a row
const POLL_MS = 2000;
const PAUSE_MS = 200; // without scrolling, before the place is kept
const COLUMNS = [["feature", "Feature"], ["label", "Label"], ["firing_rate", "Fires on"], ["score", "Score"], ["max", "Largest"], [null, "Source"]];
const CLASSES = [null, null, "number", "number", "number", "quiet"];

const main = byId("main");
let table = null;
let wanted = readAddress();
const parts = build();

function readAddress() {
  const query = new URLSearchParams(location.search);
  const sort = SORTS.includes(query.get("sort")) ? query.get("sort") : "feature";
  const score = query.get("score") === null || query.get("score") === "" ? NaN : Number(query.get("score"));
  return {
    q: query.get("q") ?? "",
    sort,
    order: ["asc", "desc"].includes(query.get("order")) ? query.get("order") : usualOrder(sort),
    labelled: query.has("labelled"),
    alive: query.has("alive"),
    source: query.get("source") ?? "",
    score: score >= 0 && score <= 1 ? score : null,
  };
}

function address() {
  const { q, sort, order, labelled, alive, source, score } = wanted;
  const query = new URLSearchParams();
  if (q) query.set("q", q);
  if (sort !== "feature" || order !== "asc") query.set("sort", sort);
  if (order !== usualOrder(sort)) query.set("order", order);
  if (labelled) query.set("labelled", "1");
  if (alive) query.set("alive", "1");
  if (source) query.set("source", source);
  if (score !== null) query.set("score", String(score));
  return String(query) ? `?${query}` : location.pathname;
}

function build() {
  const search = h("input", { type: "search", "aria-label": "Search labels", placeholder: "Search labels, or a number", autocomplete: "off" });
  const labelled = h("input", { type: "checkbox" });
  const alive = h("input", { type: "checkbox" });
  const source = h("select", {}, h("option", { value: "" }, "any source"));
  const score = h("input", { type: "number", min: 0, max: 1, step: 0.05, class: "number" });
  const said = h("p", { class: "quiet found", role: "status" }, "loading …");
  const notices = h("div", {});
  const heads = COLUMNS.map(([sort, title], place) => h("div", { role: "columnheader", class: CLASSES[place] === "number" ? "number" : null, "aria-colindex": place + 1 },
    sort ? h("button", { type: "button", onclick: () => sortBy(sort) }, title, h("span", { class: "arrow", "aria-hidden": "true" })) : title));
  const frame = h("div", { class: "frame", role: "grid", tabindex: 0, "aria-label": "Features", "aria-colcount": COLUMNS.length });
  search.addEventListener("input", () => change({ q: search.value }, { isTyping: true }));
  search.addEventListener("keydown", (event) => event.key === "ArrowDown" && (event.preventDefault(), frame.focus()));
  labelled.addEventListener("change", () => change({ labelled: labelled.checked }));
  alive.addEventListener("change", () => change({ alive: alive.checked }));
  source.addEventListener("change", () => change({ source: source.value }));
  score.addEventListener("input", () => change({ score: score.value === "" ? null : Math.max(0, Math.min(1, Number(score.value))) }, { isTyping: true }));
  replace(main,
    h("h1", {}, "Features"), notices,
    h("form", { class: "wanted", role: "search", onsubmit: (event) => event.preventDefault() },
      search, h("label", {}, labelled, "with a label"), h("label", {}, alive, "that fire"), source, h("label", {}, "score at least", score)),
    said, frame);
  const rows = new LongList(frame, { head: h("div", { class: "head row", role: "row", "aria-rowindex": 1 }, heads), make, write, open });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    search.focus();
  });
  let pause = null;
  frame.addEventListener("scroll", () => {
    clearTimeout(pause);
    pause = setTimeout(keepPlace, PAUSE_MS);
  }, { passive: true });
  addEventListener("pagehide", keepPlace);
  addEventListener("popstate", (event) => {
    wanted = readAddress();
    show(event.state ?? {});
  });
  return { search, labelled, alive, source, score, said, notices, heads, rows };
}

function keepPlace() {
  if (table) history.replaceState(parts.rows.place, "", location.href);
}

function sortBy(sort) {
  const other = wanted.order === "asc" ? "desc" : "asc";
  change({ sort, order: sort === wanted.sort ? other : usualOrder(sort) });
}

// While a word is typed the address changes in place; each other change is a step to go back.
function change(changes, { isTyping = false } = {}) {
  if (!isTyping) keepPlace();
  wanted = { ...wanted, ...changes };
  history[isTyping ? "replaceState" : "pushState"](null, "", address());
  show({}, isTyping);
}

function show(place, isTyping = false) {
  if (!table) return;
  const { search, labelled, alive, source, score, said, heads, rows } = parts;
  if (!isTyping) {
    Object.assign(search, { value: wanted.q });
    Object.assign(score, { value: wanted.score ?? "" });
  }
  labelled.checked = wanted.labelled;
  alive.checked = wanted.alive;
  source.value = wanted.source;
  heads.forEach((head, at) => {
    const isIt = COLUMNS[at][0] === wanted.sort;
    if (isIt) head.setAttribute("aria-sort", wanted.order === "asc" ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
    const arrow = head.querySelector(".arrow");
    if (arrow) arrow.textContent = isIt ? (wanted.order === "asc" ? " ▲" : " ▼") : "";
  });
  const found = table.find(wanted);
  said.textContent = found.length === table.width ? `${count(table.width)} features of ${table.sae_id}` : `${count(found.length)} of ${count(table.width)} features`;
  rows.show(found, place);
}

function make() {
  return COLUMNS.map((_, place) => h("div", { role: "gridcell", class: CLASSES[place], "aria-colindex": place + 1 },
    place === 1 ? h("a", { tabindex: -1 }) : null));
}

function write([feature, label, rate, score, largest, source], i) {
  const link = label.firstChild;
  link.href = `/feature/${i}`;
  link.textContent = table.label[i] === null ? `feature_${i}` : inText(table.label[i].slice(0, LONGEST));
  link.className = table.label[i] === null ? "quiet" : "";
  feature.textContent = i;
  source.textContent = table.sources[table.source[i]] ?? "";
  rate.textContent = table.firing_rate[i] === 0 ? "never" : percent(table.firing_rate[i]);
  score.textContent = table.score[i] === null ? "–" : table.score[i].toFixed(2);
  largest.textContent = figure(table.max_activation[i]);
}

function open(i) {
  keepPlace();
  location.assign(`/feature/${i}`);
}

async function start() {
  startShell((ready) => replace(parts.notices, ready.degraded.map((sentence) => h("p", { class: "notice" }, sentence)))).catch(() => {});
  for (;;) {
    try {
      table = await loadTable();
      break;
    } catch (error) {
      parts.said.textContent = error.message;
      if (error.code !== "loading" && error.status !== 0) return;
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }
  parts.source.append(...table.sources.map((name) => h("option", { value: name }, name)));
  show(history.state ?? {});
}

start();
