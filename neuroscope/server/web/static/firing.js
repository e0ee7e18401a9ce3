// How often and how strongly a feature fires, which tokens it promotes, and which features fire with it.

import { h } from "./dom.js";
import { count, figure, inText, percent, visible } from "./format.js";
import { barPlot } from "./plot.js";

const SHOWN_LOGITS = 10;

export function figuresLine(feature) {
  const rate = feature.firing_rate;
  const often = rate > 0 ? ` (1 in ${figure(1 / rate, 2)})` : "";
  const facts = [
    ["Fires on", rate === null ? "–" : rate === 0 ? "never" : `${percent(rate)} of tokens${often}`],
    ["Mean where it fires", figure(feature.mean_firing)],
    ["Largest", figure(feature.max_activation)],
    ["Measured on", feature.n_tokens === null ? "–" : `${count(feature.n_tokens)} tokens`],
  ];
  return h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// all: of GET /v1/features/densities.
export function firingSection(feature, all) {
  return h("section", { class: "panel", "aria-labelledby": "firing-title" },
    h("h2", { id: "firing-title" }, "How it fires"),
    activations(feature), h("h3", {}, "How often, among all features"), densities(all, feature), strata(feature));
}

function activations(feature) {
  const { histogram, histogram_edges: edges } = feature;
  const first = histogram?.findIndex((n) => n > 0) ?? -1;
  if (first < 0 || !edges.length) {
    const why = feature.firing_rate === 0 ? `It never fired in the ${count(feature.n_tokens)} tokens that were read.` : "Its activations were not measured here.";
    return [h("h3", {}, "Activations"), h("p", { class: "quiet" }, why)];
  }
  const last = histogram.findLastIndex((n) => n > 0);
  const from = Math.max(0, Math.min(first, last - 5)); // some room around a single bar
  const bars = [];
  for (let bin = from; bin <= last; bin += 1) bars.push({ n: histogram[bin], text: between(edges[bin - 1], edges[bin]) });
  const step = Math.max(2, 2 * Math.ceil(bars.length / 14));
  const ticks = [];
  for (let bin = from; bin <= last + 1; bin += 1)
    if (bin > 0 && edges[bin - 1] !== undefined && (bin - 1) % step === 0) ticks.push([bin - from, figure(edges[bin - 1], 2)]);
  const about = `Histogram of ${count(histogram.reduce((a, b) => a + b, 0))} firings by activation, from ${bars[0].text} to ${bars.at(-1).text}.`;
  return [h("h3", {}, "Activations where it fires"), barPlot({ bars, ticks, axis: "activation (log scale)", about, unit: "firings" })];
}

function between(low, high) {
  if (low === undefined) return `below ${figure(high)}`;
  return high === undefined ? `${figure(low)} and more` : `${figure(low)} to ${figure(high)}`;
}

function densities(all, feature) {
  if (!all.counts.length) return h("p", { class: "quiet" }, "No firing rates are known.");
  const { edges, counts } = all;
  const share = (edge) => `${figure(100 * 10 ** edge)}%`;
  const bars = counts.map((n, bin) => ({ n, text: `${share(edges[bin])} to ${share(edges[bin + 1])}` }));
  const ticks = edges.flatMap((edge, place) => (Number.isInteger(edge) ? [[place, share(edge)]] : []));
  const rate = feature.firing_rate;
  const at = rate > 0 ? Math.max(0, Math.min(counts.length, (Math.log10(rate) - edges[0]) / (edges[1] - edges[0]))) : null;
  const never = `${count(all.never_fired)} of ${count(all.width)} features never fired${rate === 0 ? ", this one among them" : ""}.`;
  const about = `Histogram of the firing rates of ${count(all.width)} features. ${at === null ? "" : `This one fires on ${percent(rate)} of tokens. `}${never}`;
  return [barPlot({ bars, ticks, axis: "share of tokens (log scale)", marker: at === null ? null : [at, `this one, ${percent(rate)}`], about, unit: "features" }),
    h("p", { class: "quiet" }, never)];
}

function strata(feature) {
  if (!feature.strata.length) return null;
  const rows = [...feature.strata].sort((a, b) => (b.stratum === "all") - (a.stratum === "all") || (a.stratum < b.stratum ? -1 : 1));
  const heads = ["Texts", "Fires on", "Mean", "Deviation", "Largest", "Firings", "Tokens"];
  return [h("h3", {}, "By kind of text"),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Firing by kind of text" }, h("table", {},
      h("thead", {}, h("tr", {}, heads.map((head, place) => h("th", { scope: "col", class: place ? "number" : null }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {},
        h("th", { scope: "row" }, row.stratum),
        [percent(row.firing_rate), figure(row.mean_firing), figure(row.variance_firing === null ? null : Math.sqrt(row.variance_firing)), figure(row.max_activation), count(row.n_fired), count(row.n_tokens)]
          .map((text) => h("td", { class: "number" }, text))))))),
    feature.stats_in_use && h("p", { class: "quiet" }, `The filters of the stream go by ${percent(feature.stats_in_use.firing_rate)} of tokens (${feature.stats_in_use.source}).`)];
}

export function tokensSection(feature) {
  const lists = [["promoted", "Likelier after it"], ["suppressed", "Less likely after it"]];
  const source = feature.logits.find((row) => row.source)?.source;
  return h("section", { class: "panel", "aria-labelledby": "tokens-title" },
    h("h2", { id: "tokens-title" }, "Tokens it promotes and suppresses"),
    feature.logits.length === 0
      ? h("p", { class: "quiet" }, "Not known here.")
      : [h("div", { class: "pair" }, lists.map(([kind, title]) => tokenList(feature.logits.filter((row) => row.kind === kind), title))),
        h("p", { class: "quiet" }, `Logit added by an activation of 1, straight from the feature to the output; what later layers make of it is not in it.${source ? ` Imported from ${source}.` : ""}`)]);
}

function tokenList(rows, title) {
  const most = Math.max(...rows.map((row) => Math.abs(row.weight)), 1e-9);
  return h("div", {}, h("h3", {}, title),
    rows.length === 0 ? h("p", { class: "quiet" }, "None.") : h("ol", { class: "weights" }, rows.slice(0, SHOWN_LOGITS).map((row) =>
      h("li", { style: { "--share": `${(100 * Math.abs(row.weight)) / most}%` } },
        h("code", {}, visible(row.token).slice(0, 80)), h("span", { class: "number" }, figure(row.weight))))));
}

export function neighboursSection(feature) {
  return h("section", { class: "panel", "aria-labelledby": "neighbours-title" },
    h("h2", { id: "neighbours-title" }, "Features that fire with it"),
    feature.neighbours.length === 0
      ? h("p", { class: "quiet" }, "None are known.")
      : [h("ol", { class: "weights" }, feature.neighbours.map((row) =>
        h("li", { style: { "--share": `${100 * (row.cofiring ?? 0)}%` } },
          h("a", { href: `/feature/${row.other}` }, inText(row.label).slice(0, 200)),
          h("span", { class: "number", title: `both fire on ${count(row.n_both)} tokens` }, row.cofiring === null ? "–" : percent(row.cofiring))))),
      h("p", { class: "quiet" }, "Tokens on which both fire, as a share of those on which either does, over the pool of held-out windows.")]);
}
