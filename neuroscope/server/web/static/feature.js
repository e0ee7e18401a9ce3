// The page of one feature: what GET /v1/features/{index} knows about it.

import { activitySection } from "./activity.js";
import { getJson } from "./api.js";
import { byId, h, replace } from "./dom.js";
import { examplesSection } from "./examples.js";
import { figuresLine, firingSection, neighboursSection, tokensSection } from "./firing.js";
import { inText } from "./format.js";
import { labelsSection } from "./label_scores.js";
import { startShell } from "./shell.js";
import { trySection } from "./tryout.js";

const EXAMPLES = 50; // of each kind
const POLL_MS = 2000;
const index = location.pathname.split("/").pop();
const main = byId("main");

async function load() {
  for (;;) {
    try {
      return await Promise.all([getJson(`/v1/features/${index}`, { examples: "all", n: EXAMPLES }), getJson("/v1/features/densities")]);
    } catch (error) {
      if (error.code !== "loading" && error.status !== 0) throw error;
      replace(main, h("p", { role: "status" }, error.message));
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }
}

function steps(width) {
  const at = Number(index);
  const link = (to, rel, text) => (to < 0 || to >= width ? h("span", { class: "quiet" }, text) : h("a", { href: `/feature/${to}`, rel }, text));
  return h("nav", { class: "steps", "aria-label": "Other features" }, link(at - 1, "prev", "← previous"), h("a", { href: "/features" }, "all features"), link(at + 1, "next", "next →"));
}

function page(feature, all) {
  document.title = `${inText(feature.label).slice(0, 80)} · feature ${feature.feature} · Neuroscope`;
  const there = feature.neuronpedia && [" · ", h("a", { href: feature.neuronpedia, rel: "noreferrer" }, "on Neuronpedia")];
  return [
    steps(all.width),
    h("h1", { class: "title" }, inText(feature.label)),
    h("p", { class: "quiet" }, `Feature ${feature.feature} of ${feature.sae_id}, layer ${feature.layer}`, there),
    feature.degraded.map((sentence) => h("p", { class: "notice" }, sentence)),
    figuresLine(feature),
    h("div", { class: "cards" },
      h("div", {}, labelsSection(feature), tokensSection(feature), neighboursSection(feature)),
      h("div", {}, firingSection(feature, all))),
    trySection(feature),
    activitySection(feature),
    examplesSection(feature)];
}

async function start() {
  replace(main, h("p", { role: "status" }, "loading …"));
  startShell().catch(() => {}); // what went wrong is said below, and in the header
  try {
    replace(main, page(...(await load())));
  } catch (error) {
    const isUnknown = error.status === 404;
    replace(main, h("h1", {}, isUnknown ? "There is no such feature" : "This feature cannot be shown"), h("p", {}, error.message), h("p", {}, h("a", { href: "/features" }, "All features")));
  }
}

start();
