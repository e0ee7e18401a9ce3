// An answer token by token with what the model's features do on it: the row of tokens, the features of one token,
// pinned features over the tokens, and the running summary. It is fed; where tokens come from is the page's business.

import { activationOf, createCompletion, largestSurprise } from "./completion.js";
import { createDetail } from "./detail.js";
import { h } from "./dom.js";
import { counted, figure } from "./format.js";
import { createHold } from "./hold.js";
import { createSummary } from "./summary.js";
import { createTimeline } from "./timeline.js";
import { createTokens } from "./tokens.js";

const STRIKING = 5; // surprise that tints a token fully
const MOST_PINS = 6;
const ENDS = { stop: "", length: "The answer ended at its longest length.", cancelled: "The answer was stopped.", shutdown: "The server shut down: the answer is cut off." };

// createView(container, { onselect(token or null), onwatch([index]), link(index), scoreOf(index, asks) })
//   onwatch: features whose activation should be known on every token (pinned, or tinting): fill `token.others`,
//     then `told(token)`. Without it what is not among a token's features is unknown, unless the token is `whole`.
//   link: the address of a feature's page, null for none. scoreOf: see detail.js.
// -> show(completion), append(token), finish(reason), told(token), missed({after, missed}), pin(index, label),
//    tint(index or null, label), refresh(), select(token), slots { bar, before, after, below, side }, completion
export function createView(container, { onselect = () => {}, onwatch = () => {}, link = (index) => `/feature/${index}`, scoreOf = null } = {}) {
  const pins = new Map(); // index -> label
  let completion = createCompletion("");
  let tinted = null; // index of the feature that tints
  let labelOfTinted = "";
  let mode = "surprise";
  let hovered = null;
  let chosen = null;
  let newest = null;
  let looked = null; // the newest when its features were last shown: it stays while somebody aims at them
  let frame = null;
  let means = createMeans();

  const marks = () => ({ pinned: pins, tinted: mode === "feature" ? tinted : null });
  const labelOf = (index) => pins.get(index) ?? labels.get(index) ?? `feature ${index}`;
  const labels = new Map();
  const handlers = { link, onpin: togglePin, ontint: (index, label) => setTint(mode === "feature" && tinted === index ? null : index, { label }) };
  const tokens = createTokens({ onpoint });
  const detail = createDetail({ ...handlers, scoreOf });
  const summary = createSummary({ ...handlers, rows: 8 });
  const timeline = createTimeline({ ...handlers, onpoint: (token, how) => (how === "choose" ? token && select(token) : onpoint(token, how)) });
  const slots = { bar: h("div", { class: "slot-bar" }), before: h("div", { class: "slot-before" }), after: h("div", { class: "slot-after" }), below: h("div", { class: "slot-below" }), side: h("div", { class: "slot-side" }) };
  const tail = h("span", { class: "tail" });
  const end = h("p", { class: "end quiet" });
  const scroller = h("div", { class: "panel scroller", tabindex: -1 }, slots.before, tokens.element, tail, end, slots.after);
  const tintChoice = h("select", { "aria-label": "Tint the tokens by", onchange: () => setTint(tinted, { wanted: tintChoice.value }) },
    h("option", { value: "surprise" }, "surprise"), h("option", { value: "feature", disabled: true }, "a feature"), h("option", { value: "none" }, "nothing"));
  const meters = createMeters();
  const spoken = h("div", { class: "unseen", "aria-live": "polite" });
  const bar = h("div", { class: "view-bar" }, h("label", {}, "Tint", tintChoice), slots.bar, meters.element);
  container.classList.add("view");
  container.append(bar, h("div", { class: "view-main" }, scroller, slots.below, timeline.element),
    h("div", { class: "view-side" }, detail.element, summary.element, slots.side), spoken);
  const holds = { detail: createHold(detail.element, schedule), summary: createHold(summary.element, schedule) };
  applyTint();

  function onpoint(token, how) {
    if (how === "hover") hovered = token;
    else chosen = token;
    if (how === "clear") hovered = null;
    if (how !== "hover") onselect(chosen);
    if (how === "enter") detail.focus();
    schedule();
  }

  function select(token, focus = false) {
    chosen = token;
    tokens.choose(token, focus);
    onselect(token);
    schedule();
  }

  // Rows may show a feature that no token was taken with yet, and say its label with it.
  function togglePin(index, label = labelOf(index)) {
    if (!pins.delete(index)) {
      if (pins.size >= MOST_PINS) pins.delete(pins.keys().next().value);
      pins.set(index, label);
    }
    watch();
  }

  function setTint(index, { label = labelOf(index), wanted = index === null ? "surprise" : "feature" } = {}) {
    tinted = index;
    mode = wanted === "feature" && index === null ? "surprise" : wanted;
    labelOfTinted = index === null ? "" : label;
    watch();
    applyTint();
  }

  function applyTint() {
    const [, feature] = tintChoice.options;
    feature.disabled = tinted === null;
    feature.textContent = tinted === null ? "a feature" : shortened(labelOfTinted);
    tintChoice.value = mode;
    const index = tinted;
    tokens.tint({
      surprise: { value: largestSurprise, most: STRIKING },
      feature: { value: (token) => activationOf(token, index), most: 1e-6, marksUntold: true },
      none: { value: () => null, most: 1 },
    }[mode]);
    schedule();
  }

  function watch() {
    timeline.pins([...pins].map(([index, label]) => ({ index, label })), marks().tinted);
    onwatch([...new Set([...pins.keys(), ...(tinted === null ? [] : [tinted])])].sort((a, b) => a - b));
    schedule();
  }

  function take(token) {
    for (const feature of token.features) labels.set(feature.index, feature.label);
    tokens.add(token);
    timeline.add(token);
    if (token.place === "prompt") return;
    summary.add(token);
    means.add(token);
    newest = token;
  }

  function schedule() {
    frame ??= requestAnimationFrame(render);
  }

  function render() {
    frame = null;
    const isHeld = holds.detail.is && looked !== null;
    if (!isHeld) looked = newest;
    const token = hovered ?? chosen ?? looked;
    detail.show(token, hovered ? "pointed" : chosen ? "chosen" : isHeld ? "pointed" : "newest", marks());
    summary.render(marks(), holds.summary.is);
    meters.show(token, means);
    timeline.mark(hovered ?? chosen);
    if (view.sticks && scroller.scrollTop !== scroller.scrollHeight) scroller.scrollTop = scroller.scrollHeight;
  }

  detail.element.addEventListener("keydown", (event) => event.key === "Escape" && chosen && tokens.choose(chosen, true));
  scroller.addEventListener("click", (event) => {
    if (chosen && !event.target.closest(".token, button, a") && getSelection().isCollapsed) tokens.clearChoice();
  });
  scroller.addEventListener("scroll", () => {
    view.sticks = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
  });

  const view = {
    slots,
    sticks: false, // whether the newest line stays in sight: where the reader has not scrolled away from it
    get completion() {
      return completion;
    },
    show(shown) {
      const kept = shown === completion && chosen ? chosen : null;
      completion = shown;
      hovered = chosen = newest = looked = null;
      holds.summary.end();
      means = createMeans();
      for (const part of [tokens, summary, timeline]) part.clear();
      tail.textContent = end.textContent = "";
      if (mode === "feature") applyTint();
      const gaps = new Map(shown.gaps.map((gap) => [gap.after, gap.missed]));
      shown.prompt.forEach(take);
      if (gaps.has(-1)) tokens.gap(gaps.get(-1));
      for (const token of shown.tokens) {
        take(token);
        if (gaps.has(token.index)) tokens.gap(gaps.get(token.index));
      }
      if (kept) select(kept);
      if (shown.finish_reason) view.finish(shown.finish_reason, false);
      schedule();
    },
    append(token) {
      take(token);
      schedule();
    },
    missed(gap) {
      tokens.gap(gap.missed);
    },
    told(token) {
      timeline.told(token);
      if (mode === "feature") tokens.repaint(token);
      schedule();
    },
    // `aloud`: said to screen readers as a whole; they are not read every token.
    finish(reason, aloud = true) {
      end.textContent = ENDS[reason] ?? reason;
      if (aloud) spoken.textContent = `The answer is complete, ${counted(completion.tokens.length, "token")}. ${completion.tokens.map((token) => token.token).join("")} ${end.textContent}`;
      schedule();
    },
    // Text of the answer for which no token has come.
    tail(text) {
      if (tail.textContent !== text) tail.textContent = text;
      schedule();
    },
    showPrompt(isShown) {
      tokens.element.classList.toggle("without-prompt", !isShown);
    },
    pin: (index, label) => pins.has(index) || togglePin(index, label),
    tint: (index, label) => {
      if (label !== undefined) labels.set(index, label);
      setTint(index);
    },
    refresh: schedule,
    select,
    setPinned(list) {
      pins.clear();
      for (const { index, label } of list) pins.set(index, label);
      watch();
    },
  };
  return view;
}

function shortened(label) {
  return label.length > 28 ? `${label.slice(0, 27)}…` : label;
}

function createMeans() {
  const of = { l0: { sum: 0, n: 0 }, fvu: { sum: 0, n: 0 } };
  return {
    add(token) {
      for (const [name, mean] of Object.entries(of)) {
        if (token[name] === null || token[name] === undefined) continue;
        mean.sum += token[name];
        mean.n += 1;
      }
    },
    of: (name) => (of[name].n ? of[name].sum / of[name].n : null),
  };
}

function createMeters() {
  const made = [
    ["L0", "l0", (x) => figure(x), "Features active on the token, before any filter"],
    ["FVU", "fvu", (x) => figure(x, 2), "Share of the residual that the SAE does not reconstruct on the token"],
  ].map(([name, field, written, title]) => {
    const now = h("b", { class: "number" }, "–");
    const mean = h("span", { class: "number" }, "–");
    return { field, written, now, mean, element: h("span", { class: "meter", title }, `${name} `, now, h("span", { class: "quiet" }, " mean ", mean)) };
  });
  return {
    element: h("div", { class: "meters" }, made.map((meter) => meter.element)),
    show(token, means) {
      for (const { field, written, now, mean } of made) {
        now.textContent = written(token?.[field]);
        mean.textContent = written(means.of(field));
      }
    },
  };
}
