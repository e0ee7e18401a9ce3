// What every page has: navigation, whether the server is ready, the theme, and the dialog for the key.

import { getJson, setKey, whenKeyIsAsked } from "./api.js";
import { byId, h } from "./dom.js";

const PAGES = [["live", "/", "Live"], ["features", "/features", "Features"], ["sessions", "/sessions", "Sessions"], ["diff", "/diff", "Compare"]];
const PARTS = { feature: "features", session: "sessions" };
const THEMES = ["auto", "light", "dark"];
const STATES = { loading: "the model is loading …", engine_restarting: "the model is started again …", engine_failed: "the model has failed" };
const POLL_MS = 2000;

let check = null;
let checking = null;

// Fills the header; resolves to /readyz as soon as the server has loaded. `onready` hears of it
// each time that is asked again.
export function startShell(onready = () => {}) {
  const header = byId("header");
  const here = PARTS[header.dataset.page] ?? header.dataset.page;
  const status = h("span", { class: "status", role: "status" }, "connecting …");
  header.append(
    h("div", { class: "bar" },
      h("a", { class: "brand", href: "/" }, "Neuroscope"),
      h("nav", { "aria-label": "Pages" }, PAGES.map(([name, href, text]) => h("a", { href, "aria-current": name === here ? "page" : null }, text))),
      status, themeButton()));
  whenKeyIsAsked(askForKey);
  check = () => waitReady(status, onready);
  return check();
}

// Asks whether the server is still ready: something went wrong that may be its fault.
export function checkAgain() {
  checking ??= check?.().catch(() => {}).finally(() => { checking = null; });
}

// Chooses between the system's colours, light and dark; remembered where the browser lets a page remember.
export function themeButton() {
  const button = h("button", { type: "button", title: "Colours: as the system, light, dark" });
  const show = (name) => {
    document.documentElement.dataset.theme = name;
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[name];
    button.setAttribute("aria-label", `Colours: ${name}`);
  };
  let chosen = remembered();
  if (!THEMES.includes(chosen)) chosen = "auto";
  show(chosen);
  button.addEventListener("click", () => {
    chosen = THEMES[(THEMES.indexOf(chosen) + 1) % THEMES.length];
    remember(chosen);
    show(chosen);
  });
  return button;
}

function remembered() {
  try {
    return localStorage.getItem("neuroscope-theme");
  } catch {
    return null; // a page in a sandbox, or a browser without storage
  }
}

function remember(name) {
  try {
    localStorage.setItem("neuroscope-theme", name);
  } catch {
    // it holds until the page is left
  }
}

async function waitReady(status, onready) {
  for (;;) {
    try {
      const ready = await getJson("/readyz");
      status.textContent = `${ready.model} · layer ${ready.sae.layer}`;
      status.title = ready.degraded.join("\n");
      if (ready.degraded.length) status.append(" ", h("span", { class: "warn" }, "degraded"));
      onready(ready);
      return ready;
    } catch (error) {
      status.textContent = STATES[error.code] ?? error.message;
      status.title = error.message;
      if (error.status === 401 || error.status === 403) throw error;
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }
}

let open = null;

// A promise of whether a key was given; several requests share one dialog.
function askForKey(again) {
  open ??= new Promise((resolve) => {
    const field = h("input", { type: "password", autocomplete: "off", required: true, "aria-label": "Key" });
    const dialog = h("dialog", { "aria-label": "Key" },
      h("form", { method: "dialog", onsubmit: () => setKey(field.value) },
        h("p", {}, again ? "That key was refused. " : "", "This server asks for a key: what NEUROSCOPE_API_KEY held when it was started."),
        field, " ", h("button", { class: "main" }, "Use it")));
    dialog.addEventListener("close", () => {
      resolve(field.value !== "");
      dialog.remove();
      open = null;
    });
    document.body.append(dialog);
    dialog.showModal();
  });
  return open;
}
