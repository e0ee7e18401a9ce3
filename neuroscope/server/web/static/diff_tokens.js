// The tokens of both, those that they share marked and tied to each other, and the features that differ on a pair.

import { h, replace } from "./dom.js";
import { count, figure, visible } from "./format.js";
import { createTokens } from "./tokens.js";

// createDiffTokens(answer of POST /v1/diff) -> { element }
export function createDiffTokens(found) {
  const pairs = pairing(found.runs);
  const told = { a: new Map(), b: new Map() };
  for (const pair of found.pairs) {
    told.a.set(pair.a, pair);
    told.b.set(pair.b, pair);
  }
  const detail = h("section", { class: "panel pair-detail", "aria-label": "Features that differ on the token" });
  const rows = {};
  for (const [letter, other] of [["a", "b"], ["b", "a"]]) {
    rows[letter] = createRow(found[letter], { letter, shared: pairs[letter], told: told[letter], onpoint: (token) => point(letter, other, token) });
  }
  point("a", "b", null);

  function point(letter, other, token) {
    for (const row of Object.values(rows)) row.pair(null);
    const at = token?.at;
    const partner = token ? pairs[letter].get(at) : undefined;
    if (partner !== undefined) rows[other].pair(partner);
    replace(detail, token ? about(token, letter, partner !== undefined, told[letter].get(at), found.about) : hint(found));
  }

  return { element: h("div", { class: "aligned" }, h("div", { class: "rows" }, rows.a.element, rows.b.element), detail) };
}

// Place in the other text, for each token that both have.
function pairing(runs) {
  const a = new Map();
  const b = new Map();
  for (const [start, other, length] of runs) {
    for (let n = 0; n < length; n += 1) {
      a.set(start + n, other + n);
      b.set(other + n, start + n);
    }
  }
  return { a, b };
}

function createRow(side, { letter, shared, told, onpoint }) {
  const name = letter.toUpperCase();
  let chosen = null;
  const tokens = createTokens({
    onpoint: (token, how) => {
      if (how !== "hover") chosen = how === "clear" ? null : token;
      onpoint(token ?? chosen);
    },
  });
  side.tokens.forEach((token, at) => tokens.add({ ...token, index: at, features: [], at }));
  const spans = [...tokens.element.getElementsByClassName("token")];
  const places = new Map(spans.map((span) => [span.token.at, span]));
  for (const [at, span] of places) {
    if (shared.has(at)) continue;
    span.classList.add("only");
    span.setAttribute("aria-description", `only in ${name}`);
  }
  tokens.tint({ value: (token) => told.get(token.at)?.differing ?? null, most: 1 });
  tokens.element.setAttribute("aria-label", `Tokens of ${name}; arrow keys go from one to the next`);
  let marked = null;
  return {
    element: h("section", { class: "row" },
      h("h3", {}, h("span", { class: `letter of-${letter}` }, name), " ", h("bdi", {}, side.title || "Untitled"), " ", h("small", {}, `${count(side.tokens.length)} tokens, ${count(side.tokens.length - shared.size)} only here`)),
      h("div", { class: "panel text" }, tokens.element)),
    pair(at) {
      marked?.classList.remove("pair");
      marked = at === null ? null : places.get(at);
      marked?.classList.add("pair");
      if (marked) scrollInto(marked);
    },
  };
}

// Within its own text only: the page stays where it is.
function scrollInto(span) {
  const box = span.closest(".text");
  const [inner, outer] = [span.getBoundingClientRect(), box.getBoundingClientRect()];
  if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top;
  else if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom;
}

function hint({ a, pairs, runs }) {
  const shared = runs.reduce((sum, [, , length]) => sum + length, 0);
  return [
    h("p", {}, shared ? `${count(shared)} tokens are in both, and features differ on ${count(pairs.length)} of them.` : "The two have no token in common."),
    h("p", { class: "quiet" }, "Point at a token, or walk along them with the arrow keys. The more features differ on it, the stronger its tint; ", h("span", { class: "only" }, "underlined"), " ones are in one text only."),
  ];
}

function about(token, letter, isShared, pair, features) {
  const heading = h("h3", {}, h("bdi", { class: "mono" }, `“${visible(token.token)}”`));
  if (!isShared) return [heading, h("p", {}, `Only in ${letter.toUpperCase()}.`)];
  if (!token.content) return [heading, h("p", {}, "A control token of the chat: its features are not compared.")];
  if (!pair) return [heading, h("p", {}, "In both, and no feature differs.")];
  const most = Math.max(...pair.features.flatMap((feature) => [feature.a, feature.b]));
  const more = pair.differing - pair.features.length;
  return [
    heading,
    h("p", { class: "quiet" }, `In both; ${count(pair.differing)} ${pair.differing === 1 ? "feature differs" : "features differ"}.`),
    h("ol", { class: "pair-features" }, pair.features.map((feature) => h("li", {},
      h("a", { href: `/feature/${feature.index}`, class: "name", dir: "auto" }, features[feature.index]?.label ?? `feature_${feature.index}`),
      bar("a", feature.a, most), bar("b", feature.b, most)))),
    more > 0 ? h("p", { class: "quiet" }, `and ${count(more)} that differ less.`) : null,
  ];
}

// A bar with its number; `letter` is whose.
export function bar(letter, value, most) {
  const share = most > 0 && value > 0 ? Math.min(1, value / most) : 0;
  return h("span", { class: `bar-cell of-${letter}` }, h("span", { class: "fill", style: { width: `${100 * share}%` } }), h("span", { class: "number" }, h("span", { class: "unseen" }, `${letter.toUpperCase()} `), value === 0 ? "–" : figure(value)));
}
