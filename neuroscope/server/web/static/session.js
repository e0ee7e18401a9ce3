// A recorded session: one that the server keeps, or the one inside this file when it was saved as a page.

import { FEATURES, getJson, request } from "./api.js";
import { byId, h, replace } from "./dom.js";
import { saveAs } from "./files.js";
import { checkRecording, parseRecording } from "./recording.js";
import { featureUrls, showReplay } from "./replay.js";
import { startShell, themeButton } from "./shell.js";

const inside = byId("recording");
if (inside) showInside(inside.textContent);
else showServed(decodeURIComponent(location.pathname.split("/").pop()));

function showInside(text) {
  byId("header").append(h("div", { class: "bar" }, h("span", { class: "brand" }, "Neuroscope"), h("span", { class: "status" }, "a recorded session"), themeButton()));
  try {
    const recording = parseRecording(text, "This file");
    title(recording);
    showReplay(byId("main"), recording, { actions: [saveJson(recording.id, () => new Blob([text], { type: "application/json" }))] });
  } catch (error) {
    tell(error);
  }
}

async function showServed(name) {
  const ready = startShell().catch(() => null); // a recording needs no model, so it does not wait for one
  try {
    replace(byId("main"), h("p", { class: "quiet" }, "Reading the session …"));
    const address = `/v1/sessions/${encodeURIComponent(name)}`;
    const recording = checkRecording(await getJson(address), `Session ${name}`);
    title(recording);
    showReplay(byId("main"), recording, {
      featureUrl: featureUrls(recording, ready, true),
      actions: [
        saveJson(name, async () => (await request(`${FEATURES}${address}`)).blob()),
        saveButton("Save as a page", `${name}.html`, async () => (await request(`${FEATURES}${address}.html`)).blob()),
        h("a", { class: "button", href: `/diff?a=${encodeURIComponent(name)}` }, "Compare …"),
      ],
    });
  } catch (error) {
    tell(error);
  }
}

function saveJson(name, read) {
  return saveButton("Save as JSON", `${name}.json`, read);
}

function saveButton(text, name, read) {
  return h("button", { type: "button", onclick: async (event) => {
    event.target.disabled = true;
    try {
      saveAs(await read(), name);
    } catch (error) {
      event.target.after(h("span", { class: "bad", role: "alert" }, error.message));
    } finally {
      event.target.disabled = false;
    }
  } }, text);
}

function title(recording) {
  document.title = `${recording.title || "Untitled"} · Neuroscope`;
}

function tell(error) {
  replace(byId("main"), h("div", { class: "notice bad", role: "alert" }, error.message),
    byId("recording") ? null : h("p", {}, h("a", { href: "/sessions" }, "All sessions")));
}
