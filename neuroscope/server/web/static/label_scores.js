// What a feature is called, by whom, and how far each name can be trusted.

import { h } from "./dom.js";
import { count, figure, inText } from "./format.js";
import { intervalPlot } from "./plot.js";

const MEANING = {
  rule: "The label is a rule about words. It was tried on windows that it was not made from: some in which the feature fires, and random ones in which it does not.",
  rule_near_miss: "The same rule against windows that nearly hold the feature: its own tokens are there, or features that fire with it, and yet it is silent. Harder than random ones.",
  rule_fuzzing: "In each window one token is marked. The rule must tell those on which the feature fires from others.",
  detection: "A language model read the label and windows that it was not made from: some in which the feature fires, and random ones in which it does not. It said which are which.",
  detection_near_miss: "The same against windows that nearly hold the feature: its own tokens are there, or features that fire with it, and yet it is silent. Harder than random ones.",
  fuzzing: "In each window one token is marked. A language model read the label and said on which the feature fires.",
};
const STATES = {
  labelled: "has a label from it",
  dead: "was not asked: the feature never fires",
  insufficient: "was not asked: there are too few examples",
  refused: "gave a label that was refused",
  truncated: "gave an answer that was cut off",
  invalid: "gave an answer that is no label",
  failed: "was asked in vain",
};

// The labels of GET /v1/features/{index}, the one that is shown first.
export function labelsSection(feature) {
  return h("section", { class: "panel", "aria-labelledby": "labels-title" },
    h("h2", { id: "labels-title" }, "Labels"),
    feature.labels.length ? feature.labels.map((label, place) => oneLabel(label, scoresOf(feature, label, place))) : withoutRows(feature),
    howItFared(feature));
}

// A score is about a feature and a source: where a source has several labels it is the first one's.
function scoresOf(feature, label, place) {
  const isFirst = feature.labels.findIndex((other) => other.source === label.source) === place;
  return isFirst ? feature.scores.filter((score) => score.source === label.source) : [];
}

function withoutRows(feature) {
  if (feature.source) return h("p", {}, h("b", {}, inText(feature.label)), ` from ${feature.source}. Nothing more is known about it here.`);
  if (feature.firing_rate === 0) return h("p", {}, "It has no label: it never fired in the texts that were read.");
  return h("p", {}, "It has no label.", feature.states.length || !feature.degraded.length ? "" : " What is missing is said at the top of this page.");
}

function oneLabel(label, scores) {
  const about = [label.source, label.model, label.method, label.confidence && `confidence ${label.confidence}`, label.created_at?.slice(0, 10)];
  return h("div", { class: "label" },
    h("p", { class: "name" }, h("b", {}, inText(label.label)), label.rank === 1 && h("small", { class: "tag" }, "shown")),
    h("p", { class: "quiet" }, inText(about.filter(Boolean).join(" · "))),
    scores.length ? scores.map(oneScore) : h("p", { class: "quiet" }, "Not scored: how far to trust it is unknown."));
}

function oneScore(score) {
  const name = score.method.replaceAll("_", " ");
  const meaning = MEANING[score.method] ?? "";
  const failed = score.failed ? ` ${count(score.failed)} without a verdict.` : "";
  if (score.balanced_accuracy === null)
    return h("div", { class: "score" }, h("p", {}, h("b", {}, name), ` could not be judged.${failed}`), meaning && h("p", { class: "quiet" }, meaning));
  const interval = score.low === null ? "" : ` (${figure(score.low, 2)} to ${figure(score.high, 2)})`;
  return h("div", { class: "score" },
    h("p", {}, h("b", {}, `${name} ${figure(score.balanced_accuracy, 2)}`), interval, " ", intervalPlot(score.balanced_accuracy, score.low, score.high)),
    h("p", { class: "quiet" }, meaning, ` ${count(score.tp)} of ${count(score.tp + score.fn)} with it and ${count(score.tn)} of ${count(score.tn + score.fp)} without were told.${failed}`));
}

function howItFared(feature) {
  const told = feature.states.filter((row) => row.state !== "labelled" || row.reason);
  const isScored = feature.scores.some((score) => score.balanced_accuracy !== null);
  return [
    told.length > 0 && h("ul", { class: "plain" }, told.map((row) =>
      h("li", {}, h("b", {}, inText(row.source ?? "a labeler")), ` ${STATES[row.state] ?? row.state}`, row.reason ? `: ${inText(row.reason)}` : "", "."))),
    isScored && h("p", { class: "quiet" }, "A score is the mean of two shares: of the windows with the feature that were told, and of those without. 0.5 is chance, 1 is perfect; in brackets its 95% interval."),
  ];
}
