// The top features of one token, in a place that never moves: bars by activation, label, score of the label, z.

import { h } from "./dom.js";
import { count, figure, surprise, visible } from "./format.js";
import { createRows } from "./rows.js";

const ROWS = 10;

// createDetail({ link, onpin, ontint, scoreOf }) -> { element, show(token, how, marks), focus() }
// scoreOf(index, asks): the balanced accuracy of its label; null where there is none, undefined while it is not known.
// `asks`: somebody looks at it. Without scoreOf there is no such column.
// `how`: "newest", "pointed" or "chosen".
export function createDetail({ link, onpin, ontint, scoreOf }) {
  const columns = [["act.", "The feature's activation on this token"], ["z", "Surprise: how far the activation lies from the feature's mean when it fires, in standard deviations"]];
  if (scoreOf) columns.unshift(["score", "Balanced accuracy of the label; 0.5 is chance"]);
  const rows = createRows({ rows: ROWS, columns, link, onpin, ontint, label: "Features of the token" });
  const text = h("bdi", { class: "token-shown mono" });
  const how = h("span", { class: "quiet" });
  const facts = h("p", { class: "facts quiet" });
  const element = h("section", { class: "panel detail", "aria-label": "Token" }, h("h2", {}, how, " ", text), facts, rows.element);

  function show(token, kind, marks) {
    how.textContent = token ? HOW[kind] : "No token yet";
    text.textContent = token ? `“${visible(token.token)}”` : "";
    facts.textContent = token ? factsOf(token) : "Point at a token, or walk along them with the arrow keys; Enter goes on to its features.";
    const largest = token ? Math.max(...token.features.map((f) => f.activation), 0) : 0;
    rows.show((token?.features ?? []).slice(0, ROWS).map((feature) => ({
      index: feature.index,
      label: feature.label,
      share: feature.activation / largest,
      figures: [...(scoreOf ? [scored(scoreOf(feature.index, kind !== "newest"))] : []), figure(feature.activation), surprise(feature.surprise)],
    })), marks);
  }

  return { element, show, focus: () => element.querySelector("li:not([hidden]) button")?.focus() };
}

function scored(score) {
  if (score === undefined) return "";
  return score === null ? "–" : score.toFixed(2);
}

const HOW = { newest: "Newest token", pointed: "Token", chosen: "Chosen token" };

function factsOf(token) {
  const where = token.place === "prompt" ? `prompt, position ${count(token.position)}` : `token ${count(token.index + 1)} of the answer`;
  const hidden = token.filtered_count ? ` · ${count(token.filtered_count)} filtered out` : "";
  const more = token.features.length > ROWS ? ` · strongest ${ROWS} of ${count(token.features.length)} shown` : "";
  return `${where} · id ${token.token_id} · L0 ${count(token.l0)} · FVU ${figure(token.fvu, 2)}${hidden}${more}`;
}
