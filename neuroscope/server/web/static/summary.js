// What the model is thinking about: the features with the largest summed surprise over the answer so far.
// Only surprise above zero is summed: a feature that is weaker than usual is no theme. Without statistics no surprise
// is known, and activations are summed instead.

import { h } from "./dom.js";
import { count, figure } from "./format.js";
import { createRows } from "./rows.js";

// createSummary({ rows, link, onpin, ontint }) -> { element, clear(), add(token), render(marks, isHeld) }
export function createSummary({ rows: length, link, onpin, ontint }) {
  const rows = createRows({
    rows: length, link, onpin, ontint, label: "Features by summed surprise",
    columns: [["tokens", "Tokens on which it is among the features shown"], ["sum", "Sum of its surprise above zero"]],
  });
  const note = h("p", { class: "facts quiet" });
  const element = h("section", { class: "panel summary", "aria-label": "What it is thinking about" }, h("h2", {}, "What it is thinking about"), note, rows.element);
  let bySurprise = createSums(length);
  let byActivation = createSums(length);
  let shown = 0;

  return {
    element,
    clear() {
      bySurprise = createSums(length);
      byActivation = createSums(length);
      shown = 0;
    },
    add(token) {
      for (const feature of token.features) {
        if (feature.surprise !== null) bySurprise.add(feature, Math.max(0, feature.surprise));
        byActivation.add(feature, feature.activation);
      }
    },
    render(marks, isHeld = false) {
      if (isHeld && shown > 0) return rows.mark(marks);
      const known = bySurprise.top.length > 0 || byActivation.top.length === 0;
      const { top } = known ? bySurprise : byActivation;
      shown = top.length;
      note.textContent = known ? "Features by summed surprise, over the answer" : "No surprise is known: by summed activation, over the answer";
      rows.show(top.map((entry) => ({
        index: entry.index, label: entry.label, share: entry.sum / top[0].sum, figures: [count(entry.tokens), figure(entry.sum)],
      })), marks);
    },
  };
}

// The `length` largest of sums that only grow, kept in order as they grow: no sorting of thousands at every token.
function createSums(length) {
  const sums = new Map();
  const top = [];
  return {
    top,
    add({ index, label }, value) {
      const entry = sums.get(index) ?? { index, label, sum: 0, tokens: 0, isTop: false };
      sums.set(index, entry);
      entry.sum += value;
      entry.tokens += 1;
      if (entry.sum === 0) return;
      if (!entry.isTop) {
        if (top.length === length) {
          if (entry.sum <= top[length - 1].sum) return;
          top.pop().isTop = false;
        }
        entry.isTop = true;
        top.push(entry);
      }
      for (let n = top.indexOf(entry); n > 0 && top[n - 1].sum < entry.sum; n -= 1) [top[n - 1], top[n]] = [top[n], top[n - 1]];
    },
  };
}
