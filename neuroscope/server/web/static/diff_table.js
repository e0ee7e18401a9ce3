// The features that differ between two texts: a table that is sorted and narrowed, with a bar for each side.

import { bar } from "./diff_tokens.js";
import { h, replace } from "./dom.js";
import { count, signed, surprise } from "./format.js";

const STATES = { appears: "appears", vanishes: "vanishes", stronger: "stronger in B", weaker: "weaker in B" };
const MEASURES = { sum: "summed activation", max: "largest activation", mean: "mean where active", surprise: "summed surprise", tokens: "tokens" };

// createDiffTable(answer of POST /v1/diff) -> { element }. Its order is the server's until a heading is pressed.
export function createDiffTable(found) {
  let measure = "sum";
  let sort = null; // { name, down }
  const states = new Set();
  const values = (row) => [row.a[measure] ?? 0, row.b[measure] ?? 0];
  const labelOf = (row) => found.about[row.index]?.label ?? `feature_${row.index}`;
  const keys = {
    Feature: (row) => labelOf(row).toLowerCase(), State: (row) => Object.keys(STATES).indexOf(row.state),
    A: (row) => values(row)[0], B: (row) => values(row)[1], Change: (row) => Math.abs(values(row)[1] - values(row)[0]),
    "Change in surprise": (row) => (row.change_surprise === null ? -1 : Math.abs(row.change_surprise)),
  };
  const body = h("tbody");
  const caption = h("caption", { class: "quiet" });
  const heads = Object.keys(keys).map((name) => {
    const button = h("button", { type: "button", onclick: () => { sort = { name, down: sort?.name === name ? !sort.down : !["Feature", "State"].includes(name) }; show(); } }, name);
    return { name, element: h("th", { scope: "col" }, button) };
  });
  const chips = Object.entries(STATES).map(([state, text]) => h("button", {
    type: "button", class: "chip", "aria-pressed": "false",
    onclick: (event) => {
      if (!states.delete(state)) states.add(state);
      event.currentTarget.setAttribute("aria-pressed", states.has(state));
      show();
    },
  }, `${text} `, h("b", {}, count(found.counts[state]))));
  const chosen = h("select", { onchange: () => { measure = chosen.value; show(); } }, Object.entries(MEASURES).map(([value, text]) => h("option", { value }, text)));

  function show() {
    const rows = found.features.filter((row) => !states.size || states.has(row.state));
    if (sort) {
      const key = keys[sort.name];
      rows.sort((one, other) => (sort.down ? -1 : 1) * (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0) || one.index - other.index);
    }
    for (const { name, element } of heads) element.setAttribute("aria-sort", sort?.name === name ? (sort.down ? "descending" : "ascending") : "none");
    const most = Math.max(0, ...rows.flatMap(values));
    caption.textContent = rows.length === found.features.length ? `${count(rows.length)} features, those that differ most first` : `${count(rows.length)} of ${count(found.features.length)} features`;
    if (sort) caption.textContent = `${count(rows.length)} features by ${sort.name.toLowerCase()}`;
    replace(body, rows.map((row) => rowOf(row, values(row), most)));
  }

  function rowOf(row, [a, b], most) {
    return h("tr", {},
      h("th", { scope: "row" }, h("a", { href: `/feature/${row.index}`, dir: "auto" }, labelOf(row)), " ", h("small", {}, `${row.index}`)),
      h("td", { class: `state ${row.state}` }, STATES[row.state]),
      h("td", {}, bar("a", a, most)), h("td", {}, bar("b", b, most)),
      h("td", { class: "number" }, signed(b - a)), h("td", { class: "number" }, surprise(row.change_surprise)));
  }

  show();
  return {
    element: h("section", { "aria-label": "Features that differ" },
      h("div", { class: "toolbar" }, h("div", { class: "chips", role: "group", "aria-label": "States" }, chips), h("label", {}, "Bars show", chosen)),
      h("div", { class: "scroll" }, h("table", { class: "differences" }, caption, h("thead", {}, h("tr", {}, heads.map(({ element }) => element))), body))),
  };
}
