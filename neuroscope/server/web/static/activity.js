// The feature on the tokens that the model writes now, whoever asked. It listens only while its tab is looked at:
// a browser has six connections to a server, and a tab in the background should take none.

import { h } from "./dom.js";
import { colour, heatLine } from "./heat.js";
import { figure } from "./format.js";
import { listen } from "./stream.js";

const KEPT = 120; // tokens
const SAID = { connecting: "connecting …", live: "No answer is being written.", reconnecting: "The connection is lost; trying again …" };

export function activitySection(feature) {
  const said = h("p", { class: "quiet", role: "status" }, SAID.connecting);
  const frame = h("div", { class: "live" });
  let tokens = [];
  let values = [];
  let stream = null;
  let isDue = false;

  function draw() {
    isDue = false;
    const scale = Math.max(feature.max_activation ?? 0, ...values.map((value) => value ?? 0));
    const line = heatLine(tokens, { name: "Tokens being written" });
    colour(line, values, scale);
    frame.replaceChildren(line);
    frame.scrollTop = frame.scrollHeight;
  }

  function add(text, value) {
    tokens.push(text);
    values.push(value);
    tokens = tokens.slice(-KEPT);
    values = values.slice(-KEPT);
    if (!isDue) requestAnimationFrame(draw);
    isDue = true;
  }

  function onevent(name, data) {
    if (name === "feature_activation") {
      const value = data.top_features[0]?.activation ?? 0;
      add(data.token, value);
      said.textContent = value > 0 ? `${data.completion_id}: fires at ${figure(value)}.` : `${data.completion_id}: silent.`;
    } else if (name === "generation_complete" || name === "generation_error") {
      add(" ■ ", null);
      said.textContent = `${data.completion_id}: ${data.message ?? "complete"}.`;
    } else if (name === "gap") {
      add(" … ", null);
    }
  }

  function onstate(state, message) {
    if (state !== "live" || !tokens.length) said.textContent = message || SAID[state] || state;
  }

  function follow() {
    if (document.visibilityState === "visible") {
      stream ??= listen({ onevent, onstate }, { features: feature.feature, filter: "none", min_activation: 0, top_k: 1 });
    } else if (stream) {
      stream.close();
      stream = null;
      if (tokens.length) add(" … ", null);
    }
  }

  document.addEventListener("visibilitychange", follow);
  follow();
  return h("section", { class: "panel", "aria-labelledby": "live-title" }, h("h2", { id: "live-title" }, "In what is being written now"), frame, said);
}
