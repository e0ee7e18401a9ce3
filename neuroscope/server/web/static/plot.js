// Small plots as SVG: bars over an axis, with a marker, and a score with its interval. Each says in words what it
// shows, and its figures are there as a table too.

import { h } from "./dom.js";
import { count, figure } from "./format.js";

const WIDTH = 460;
const HEIGHT = 190;
const LEFT = 46;
const RIGHT = 22;
const TOP = 22;
const BOTTOM = 40;

// bars: [{ from, to, n, text }], neighbours side by side. ticks: [[place among the borders, text]]. marker: [place,
// text]. `about` says it all in a sentence.
export function barPlot({ bars, ticks, axis, marker = null, about, unit }) {
  const most = Math.max(1, ...bars.map((bar) => bar.n));
  const x = (place) => LEFT + (place / Math.max(1, bars.length)) * (WIDTH - LEFT - RIGHT);
  const y = (n) => HEIGHT - BOTTOM - (n / most) * (HEIGHT - TOP - BOTTOM);
  const svg = h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": about },
    [0, most].map((n) => h("g", {},
      h("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(n), y2: y(n), class: "grid" }),
      h("text", { x: LEFT - 6, y: y(n) + 4, "text-anchor": "end" }, short(n)))),
    bars.map((bar, place) => bar.n > 0 && h("rect", {
      x: x(place) + 0.5, width: Math.max(1, x(place + 1) - x(place) - 1), y: Math.min(y(bar.n), y(0) - 1),
      height: Math.max(1, y(0) - y(bar.n)), class: "bar" }, h("title", {}, `${bar.text}: ${count(bar.n)} ${unit}`))),
    ticks.map(([place, text]) => h("text", { x: x(place), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, text)),
    h("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, axis),
    marker && mark(x(marker[0]), marker[1]));
  return h("figure", { class: "plot" }, svg, asTable(bars, axis, unit));
}

function mark(at, text) {
  const anchor = at > WIDTH * 0.6 ? "end" : "start";
  return h("g", { class: "marker" },
    h("line", { x1: at, x2: at, y1: TOP - 8, y2: HEIGHT - BOTTOM }),
    h("text", { x: at + (anchor === "end" ? -5 : 5), y: TOP - 8, "text-anchor": anchor }, text));
}

function asTable(bars, axis, unit) {
  return h("details", {}, h("summary", {}, "As a table"),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, axis), h("th", { scope: "col", class: "number" }, unit))),
      h("tbody", {}, bars.filter((bar) => bar.n > 0).map((bar) =>
        h("tr", {}, h("td", {}, bar.text), h("td", { class: "number" }, count(bar.n))))))));
}

function short(n) {
  return n >= 10_000 ? `${figure(n / 1000, 3)}k` : count(n);
}

// A score from 0 to 1 with its interval, and where chance lies.
export function intervalPlot(value, low, high) {
  const x = (share) => 4 + share * 192;
  const said = low === null ? figure(value) : `${figure(value)}, from ${figure(low)} to ${figure(high)}`;
  return h("svg", { viewBox: "0 0 200 16", class: "interval", role: "img", "aria-label": `${said}; chance is 0.5` },
    h("line", { x1: x(0), x2: x(1), y1: 8, y2: 8, class: "grid" }),
    h("line", { x1: x(0.5), x2: x(0.5), y1: 1, y2: 15, class: "chance" }),
    low !== null && h("rect", { x: x(low), width: Math.max(1, x(high) - x(low)), y: 5, height: 6, class: "range" }),
    h("circle", { cx: x(value), cy: 8, r: 4.5, class: "dot" }));
}
