// Pinned features over the tokens: a lane each, so that they are told apart without colour. A lane is drawn in pieces
// of 64 tokens; only pieces with news are drawn again. A token whose activation is not known is hatched, not zero.

import { h } from "./dom.js";
import { activationOf } from "./completion.js";
import { figure, visible } from "./format.js";

const PIECE = 64;
const HIGH = 100;

// createTimeline({ link, onpin, ontint, onpoint(token, how) })
// -> { element, pins(list of { index, label }, tinted), clear(), add(token), told(token), render(), mark(token) }
export function createTimeline({ link, onpin, ontint, onpoint }) {
  const hint = h("p", { class: "facts quiet" }, "Pin features with + to see them over the tokens.");
  const lanes = h("div", { class: "lanes" });
  const element = h("section", { class: "panel timeline", "aria-label": "Pinned features over the tokens" }, h("h2", {}, "Pinned features"), hint, lanes);
  const tokens = [];
  const places = new Map();
  let shown = [];
  let room = PIECE; // tokens that fit before the scale changes
  let marked = null;

  const context = { tokens, onpoint: (share, how) => onpoint(share === null ? null : tokens[Math.floor(share * room)] ?? null, how) };

  return {
    element,
    pins(list, tinted) {
      const old = new Map(shown.map((lane) => [lane.index, lane]));
      shown = list.map((pin) => old.get(pin.index) ?? createLane(pin, { link, onpin, ontint, ...context }));
      lanes.replaceChildren(...shown.map((lane) => lane.element));
      hint.hidden = shown.length > 0;
      for (const lane of shown) lane.state(tinted, room, marked);
    },
    clear() {
      tokens.length = 0;
      places.clear();
      room = PIECE;
      marked = null;
      for (const lane of shown) lane.clear();
    },
    add(token) {
      places.set(token, tokens.length);
      tokens.push(token);
      while (tokens.length > room) room *= 2;
      for (const lane of shown) lane.dirty(tokens.length - 1);
    },
    told(token) {
      const place = places.get(token);
      if (place !== undefined) for (const lane of shown) lane.dirty(place);
    },
    render() {
      for (const lane of shown) lane.render(room, marked);
    },
    mark(token) {
      marked = places.get(token) ?? null;
      for (const lane of shown) lane.render(room, marked);
    },
  };
}

function createLane({ index, label }, { tokens, link, onpin, ontint, onpoint }) {
  const tint = h("button", { type: "button", class: "icon tint-button", title: `Tint the tokens by ${label}`, "aria-label": `Tint the tokens by ${label}`, onclick: () => ontint(index, label) }, "◐");
  const remove = h("button", { type: "button", class: "icon pin-button", title: `Unpin ${label}`, "aria-label": `Unpin ${label}`, onclick: () => onpin(index, label) }, "−");
  const value = h("span", { class: "number quiet" });
  const bars = h("g", { class: "bars" });
  const untold = h("g", { class: "untold" });
  const cursor = h("rect", { class: "cursor", y: 0, height: HIGH, width: 1, visibility: "hidden" });
  const svg = h("svg", { class: "lane-plot", preserveAspectRatio: "none", role: "img" }, untold, bars, cursor);
  const href = link(index);
  const name = h("a", { class: "feature-name", href, target: "_blank", rel: "noopener", title: `${label}\nfeature ${index}` }, label);
  const element = h("div", { class: "lane" }, h("div", { class: "lane-head" }, tint, remove, name, value), svg);
  const pieces = [];
  const stale = new Set(tokens.map((_, n) => Math.floor(n / PIECE)));
  let most = 0;
  let at = 0; // place of the largest

  const share = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.max(0, Math.min(0.999999, (event.clientX - box.left) / box.width));
  };
  svg.addEventListener("pointermove", (event) => event.pointerType !== "touch" && onpoint(share(event), "hover"));
  svg.addEventListener("pointerleave", () => onpoint(null, "hover"));
  svg.addEventListener("click", (event) => onpoint(share(event), "choose"));

  function draw(number) {
    const piece = (pieces[number] ??= { known: bars.appendChild(h("path")), not: untold.appendChild(h("path")) });
    let known = "";
    let not = "";
    for (let n = number * PIECE; n < Math.min(tokens.length, (number + 1) * PIECE); n += 1) {
      const activation = activationOf(tokens[n], index);
      if (activation === null) not += `M${n} ${HIGH}v-8h1v8z`;
      else if (activation > 0) known += `M${n} 0v${activation}h1v${-activation}z`;
      if (activation > most && tokens[n].content) [most, at] = [activation, n];
    }
    piece.known.setAttribute("d", known);
    piece.not.setAttribute("d", not);
  }

  const lane = {
    index,
    element,
    state(tinted, room, marked) {
      tint.setAttribute("aria-pressed", tinted === index);
      lane.render(room, marked);
    },
    clear() {
      bars.replaceChildren();
      untold.replaceChildren();
      pieces.length = 0;
      stale.clear();
      most = 0;
    },
    dirty(n) {
      stale.add(Math.floor(n / PIECE));
    },
    render(room, marked) {
      stale.forEach(draw);
      stale.clear();
      svg.setAttribute("viewBox", `0 0 ${room} ${HIGH}`);
      bars.setAttribute("transform", `translate(0 ${HIGH}) scale(1 ${most > 0 ? -(HIGH - 4) / most : -1})`);
      cursor.setAttribute("visibility", marked === null ? "hidden" : "visible");
      if (marked !== null) cursor.setAttribute("x", marked);
      const activation = marked === null || !tokens[marked] ? most : activationOf(tokens[marked], index);
      value.textContent = marked === null ? `max ${figure(most)}` : activation === null ? "not told" : figure(activation);
      const where = most > 0 ? `; largest ${figure(most)}, at “${visible(tokens[at]?.token ?? "")}”` : "; silent";
      svg.setAttribute("aria-label", `${label} over ${tokens.length} tokens${where}`);
    },
  };
  return lane;
}
