// A recording on the page: what it is, the controls of what is shown, the player, and the view that the live page has.
// Everything comes out of the recording; no server is asked.

import { h, replace } from "./dom.js";
import { count, counted, moment } from "./format.js";
import { createPlayer } from "./player.js";
import { FILTERS } from "./ranking.js";
import { completionOf, rankingOf } from "./recording.js";
import { createView } from "./view.js";

const ENDS = { stop: "ended by itself", length: "ended at its token limit", cancelled: "was cancelled", shutdown: "ended with the server" };

// `actions` are elements beside the title. `featureUrl(index)` gives the address of a feature's page, or null.
export function showReplay(container, recording, { actions = [], featureUrl = () => null } = {}) {
  const choices = { ...rankingOf(recording), prompt: recording.prompt.length > 0 };
  const place = h("div", { class: "replay-view" });
  const view = createView(place, { link: featureUrl, onselect: (token) => { chosen = token; } });
  const player = createPlayer({ length: recording.tokens.length, onmove: move });
  let all = null; // the completion with every token; the view's grows
  let chosen = null;
  let shown = recording.tokens.length;
  let target = shown;
  let waiting = false;

  function rank() {
    const again = chosen;
    all = completionOf(recording, choices);
    showUpTo(shown);
    const same = again && all[again.place === "prompt" ? "prompt" : "tokens"][again.index];
    if (same && (again.place === "prompt" || again.index < shown)) view.select(same);
  }

  function showUpTo(position) {
    const isWhole = position === all.tokens.length;
    chosen = null;
    view.show({ ...all, tokens: all.tokens.slice(0, position), finish_reason: isWhole ? all.finish_reason : null });
    shown = position;
  }

  // A slider moves faster than a page is drawn: one change a frame is shown, the newest.
  function move(position) {
    target = position;
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (target < shown) return showUpTo(target);
      for (const token of all.tokens.slice(shown, target)) {
        view.completion.tokens.push(token);
        view.append(token);
      }
      shown = target;
      if (shown === all.tokens.length) view.finish(all.finish_reason, false);
    });
  }

  replace(container,
    heading(recording, actions),
    conversation(recording.messages),
    controls(choices, recording.prompt.length > 0, rank, () => view.showPrompt(choices.prompt)),
    player.element, place);
  rank();
}

// Where a feature of `recording` has a page on this server: it has one when the server's SAE is the recording's.
// `ready` is a promise of /readyz, or of null; until it is there, `meanwhile` says whether that is so.
export function featureUrls(recording, ready, meanwhile) {
  let isSame = meanwhile;
  ready.then((now) => {
    if (now) isSame = now.model === recording.model && now.sae.id === recording.sae_id && now.sae.layer === recording.layer && now.sae.width === recording.width;
  });
  return (index) => (isSame ? `/feature/${index}` : null);
}

function heading(recording, actions) {
  const facts = [
    recording.model, `layer ${recording.layer}`, `SAE ${recording.sae_id}`,
    counted(recording.tokens.length, "token"), `${ENDS[recording.finish_reason] ?? recording.finish_reason}`,
    moment(recording.created_at), recording.completion_id,
  ];
  return [
    h("div", { class: "title-row" }, h("h1", {}, recording.title || "Untitled"), h("div", { class: "actions" }, actions)),
    h("p", { class: "quiet facts" }, facts.map((fact) => h("span", {}, fact))),
    recording.degraded.length ? h("div", { class: "notice" }, "Recorded while something was missing: ", recording.degraded.join(" ")) : null,
  ];
}

function conversation(messages) {
  if (!messages?.length) return null;
  return h("details", { class: "conversation" },
    h("summary", {}, `The conversation before the answer (${count(messages.length)})`),
    messages.map(({ role, content }) => h("div", { class: "message" }, h("strong", {}, role), h("div", { class: "said" }, content))));
}

// Changes `choices` in place and says so.
function controls(choices, hasPrompt, onchange, onprompt) {
  const number = (name, text, bounds, accept) => h("label", {}, text, h("input", {
    type: "number", value: choices[name], ...bounds,
    oninput: (event) => {
      const value = event.target.valueAsNumber;
      event.target.setCustomValidity("");
      if (!accept(value)) return event.target.reportValidity();
      choices[name] = value;
      onchange();
    },
  }));
  return h("form", { class: "controls panel", "aria-label": "What is shown", onsubmit: (event) => event.preventDefault() },
    h("label", {}, "Filter", h("select", { onchange: (event) => { choices.filter = event.target.value; onchange(); } },
      FILTERS.map((name) => h("option", { value: name, selected: name === choices.filter }, name.replace("_", ", "))))),
    number("threshold", "Firing rate at most", { min: 0, max: 1, step: "any" }, (x) => x >= 0 && x <= 1),
    number("topK", "Features", { min: 1, max: 1000, step: 1 }, (x) => Number.isInteger(x) && x >= 1),
    number("minActivation", "Activation at least", { min: 0, step: "any" }, (x) => x >= 0),
    hasPrompt ? h("label", {}, h("input", { type: "checkbox", checked: choices.prompt, onchange: (event) => { choices.prompt = event.target.checked; onprompt(); } }), "Prompt tokens") : null);
}
