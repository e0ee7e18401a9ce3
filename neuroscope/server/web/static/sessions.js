// The recorded sessions of this server, and any recording of the reader's disk.

import { FEATURES, getJson, request } from "./api.js";
import { byId, h, replace } from "./dom.js";
import { acceptDrop, fileButton, saveAs } from "./files.js";
import { bytes, count, moment } from "./format.js";
import { readFile } from "./recording.js";
import { featureUrls, showReplay } from "./replay.js";
import { startShell } from "./shell.js";

const PAGE = 500;

const ready = startShell().catch(() => null); // the list needs no model
const ticked = new Set();
let rows = [];
let opened = 0; // of which file an answer is: a slow one gives way to a later one

const said = h("p", { role: "status", class: "said-here" });
const search = h("input", { type: "search", placeholder: "Search title, model, pairing", "aria-label": "Search", oninput: showRows });
const compare = h("button", { type: "button", onclick: goCompare });
const list = h("div", { class: "list" });
const page = h("div", {},
  h("h1", {}, "Recorded sessions"),
  h("div", { class: "toolbar" }, search, compare, fileButton("Open a file …", openFile), h("span", { class: "quiet drop-hint" }, "or drop one here")),
  list);
const replayed = h("div", { hidden: true });

replace(byId("main"), said, page, replayed);
history.replaceState(null, "", location.pathname); // a file does not outlive the page that opened it
acceptDrop(document.body, openFile);
window.addEventListener("popstate", showList);
showCompare();
load();

async function load() {
  replace(list, h("p", { class: "quiet" }, "Reading the list …"));
  try {
    const found = [];
    for (;;) {
      const answer = await getJson("/v1/sessions", { limit: PAGE, offset: found.length });
      found.push(...answer.sessions);
      if (!answer.sessions.length || found.length >= answer.total) break;
    }
    rows = found;
    showRows();
  } catch (error) {
    replace(list, h("div", { class: "notice bad", role: "alert" }, error.message), h("p", {}, h("button", { type: "button", onclick: load }, "Try again")));
  }
}

function showRows() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (row) => [row.id, row.title, row.model, row.pairing, row.completion_id].join("\n").toLowerCase();
  const found = rows.filter((row) => words.every((word) => text(row).includes(word)));
  if (!rows.length) return replace(list, emptyWords());
  if (!found.length) return replace(list, h("p", { class: "quiet" }, `None of ${count(rows.length)} sessions has these words.`));
  replace(list, h("table", {},
    h("caption", { class: "quiet" }, found.length === rows.length ? `${count(rows.length)} sessions, newest first` : `${count(found.length)} of ${count(rows.length)} sessions`),
    h("thead", {}, h("tr", {}, ["", "Title", "Recorded", "Tokens", "Model", "Size", ""].map((name) => h("th", { scope: "col", class: name === "Tokens" || name === "Size" ? "number" : null }, name)))),
    h("tbody", {}, found.map(rowOf))));
}

function emptyWords() {
  return h("div", { class: "panel" },
    h("p", {}, "No session is saved yet."),
    h("p", {}, "Save one with the button of the ", h("a", { href: "/" }, "live page"), ", or from the terminal: ", h("code", {}, 'neuroscope record "Where is Paris?"'), "."),
    h("p", {}, "A recording that somebody sent you opens here too, of whatever model it is."));
}

function rowOf(row) {
  const name = row.title || (row.error ? row.id : "Untitled");
  const address = `/session/${encodeURIComponent(row.id)}`;
  const tick = h("input", { type: "checkbox", checked: ticked.has(row.id), disabled: Boolean(row.error), "aria-label": `Compare ${name}`, onchange: (event) => {
    if (event.target.checked) ticked.add(row.id);
    else ticked.delete(row.id);
    showCompare();
  } });
  const file = `/v1/sessions/${encodeURIComponent(row.id)}`;
  const act = (text, words, onclick) => h("button", { type: "button", class: "small", "aria-label": `${words} ${name}`, onclick }, text);
  return h("tr", { "data-id": row.id },
    h("td", { class: "tick" }, tick),
    h("td", { class: "name" }, row.error ? [h("span", {}, name), h("div", { class: "bad" }, row.error)] : h("a", { href: address }, name)),
    h("td", { class: "time" }, moment(row.created_at)),
    h("td", { class: "number tokens" }, count(row.total_tokens)),
    h("td", { class: "model" }, row.model ? [h("span", {}, row.model), " ", h("span", { class: "quiet" }, `layer ${row.layer}`)] : "–"),
    h("td", { class: "number size" }, bytes(row.bytes)),
    h("td", { class: "acts" }, row.error ? null : [
      act("JSON", "Save as JSON:", () => save(file, `${row.id}.json`)),
      act("Page", "Save as a page:", () => save(`${file}.html`, `${row.id}.html`)),
    ], act("Delete", "Delete", () => askDelete(row, name))));
}

async function save(path, name) {
  try {
    saveAs(await (await request(`${FEATURES}${path}`)).blob(), name);
    say(`${name} is saved.`);
  } catch (error) {
    say(error.message, "bad");
  }
}

function askDelete(row, name) {
  const dialog = h("dialog", { "aria-label": "Delete" },
    h("form", { method: "dialog" },
      h("p", {}, "Delete ", h("strong", {}, name), "? Its file is removed from the server's disk."),
      h("div", { class: "actions" }, h("button", { value: "no" }, "Keep it"), h("button", { value: "yes", class: "danger" }, "Delete it"))));
  dialog.addEventListener("close", async () => {
    const isMeant = dialog.returnValue === "yes";
    dialog.remove();
    if (isMeant) await remove(row, name);
  });
  document.body.append(dialog);
  dialog.showModal();
}

async function remove(row, name) {
  try {
    await request(`${FEATURES}/v1/sessions/${encodeURIComponent(row.id)}`, { method: "DELETE" });
    say(`${name} is deleted.`);
  } catch (error) {
    if (error.status !== 404) return say(error.message, "bad");
    say(`${name} was deleted already.`);
  }
  ticked.delete(row.id);
  rows = rows.filter(({ id }) => id !== row.id);
  showRows();
  showCompare();
  search.focus(); // the button that had the focus is gone
}

function showCompare() {
  compare.textContent = ticked.size === 2 ? "Compare the two" : `Tick two to compare (${ticked.size})`;
  compare.disabled = ticked.size !== 2;
}

function goCompare() {
  const [a, b] = ticked;
  location.href = `/diff?${new URLSearchParams({ a, b })}`;
}

// Replays a file of the reader's disk in this page; Back leads to the list again.
async function openFile(file) {
  const mine = ++opened;
  say(`Reading ${file.name} …`);
  try {
    const recording = await readFile(file);
    if (mine !== opened) return;
    say("");
    if (replayed.hidden) history.pushState(null, "", "#file");
    page.hidden = true;
    replayed.hidden = false;
    document.title = `${recording.title || "Untitled"} · Neuroscope`;
    showReplay(replayed, recording, {
      featureUrl: featureUrls(recording, ready, false),
      actions: [h("span", { class: "quiet" }, `from ${file.name}`), h("button", { type: "button", onclick: () => history.back() }, "All sessions")],
    });
    window.scrollTo(0, 0);
  } catch (error) {
    if (mine !== opened) return;
    say(error.message, "bad");
  }
}

function showList() {
  replayed.hidden = true;
  replace(replayed);
  page.hidden = false;
  document.title = "Sessions · Neuroscope";
}

function say(text, kind = "") {
  said.textContent = text;
  said.className = `said-here ${kind}`;
}
