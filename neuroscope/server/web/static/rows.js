// Rows of features in fixed places: a bar, the label as a link, a button that pins and one that tints.
// The rows stay and their contents change, so nothing moves and a button keeps the focus.

import { h } from "./dom.js";

// createRows({ rows, columns: [name], link(index), onpin(index, label), ontint(index, label) }) -> { element, show(list, marks), mark(marks) }
// Each of the list: { index, label, share (of the bar, 0 to 1), figures: [text] }; marks: { pinned: Set, tinted }.
export function createRows({ rows, columns, link, onpin, ontint, label }) {
  const made = Array.from({ length: rows }, () => createRow(columns.length, { link, onpin, ontint }));
  const heads = h("div", { class: "feature-row heads", "aria-hidden": "true" },
    h("span", { class: "feature-buttons" }), h("span", { class: "feature-name" }, "feature"),
    columns.map(([name, title]) => h("span", { class: "number", title }, name)));
  const list = h("ol", { class: "feature-rows", "aria-label": label }, made.map((row) => row.element));
  return {
    element: h("div", { class: "feature-table", style: { "--columns": columns.length, "--rows": rows } }, heads, list),
    show(shown, marks) {
      made.forEach((row, n) => row.show(shown[n] ?? null, marks));
    },
    // Which are pinned and which one tints; the rows stay as they are.
    mark(marks) {
      for (const row of made) row.mark(marks);
    },
  };
}

function createRow(columns, { link, onpin, ontint }) {
  let index = null;
  let text = null;
  const tint = h("button", { type: "button", class: "icon tint-button", onclick: () => ontint(index, text) }, "◐");
  const pin = h("button", { type: "button", class: "icon pin-button", onclick: () => onpin(index, text) }, "+");
  const name = h("a", { class: "feature-name", target: "_blank", rel: "noopener" });
  const figures = Array.from({ length: columns }, () => h("span", { class: "number" }));
  const element = h("li", { class: "feature-row", hidden: true }, h("span", { class: "bar-of", "aria-hidden": "true" }),
    h("span", { class: "feature-buttons" }, tint, pin), name, figures);
  const bar = element.firstChild;
  function markAs({ pinned, tinted }) {
    const isPinned = pinned.has(index);
    mark(pin, isPinned, isPinned ? "−" : "+", `${isPinned ? "Unpin" : "Pin"} ${text}`);
    mark(tint, tinted === index, "◐", `Tint the tokens by ${text}`);
  }

  return {
    element,
    mark: (marks) => element.hidden || markAs(marks),
    show(feature, marks) {
      element.hidden = feature === null;
      if (feature === null) return;
      if (feature.index !== index || feature.label !== text) {
        ({ index, label: text } = feature);
        name.textContent = text;
        name.title = `${text}\nfeature ${index}`;
        const href = link(index);
        if (href === null) name.removeAttribute("href");
        else name.setAttribute("href", href);
      }
      markAs(marks);
      bar.style.setProperty("--share", Math.max(0, Math.min(1, feature.share || 0)));
      feature.figures.forEach((figure, n) => {
        if (figures[n].textContent !== figure) figures[n].textContent = figure;
      });
    },
  };
}

function mark(button, pressed, text, title) {
  if (button.textContent !== text) button.textContent = text;
  if (button.title !== title) {
    button.title = title;
    button.setAttribute("aria-label", title);
  }
  button.setAttribute("aria-pressed", pressed);
}
