// All features in memory, column by column: found, filtered and sorted without asking the server again.

import { getJson } from "./api.js";

const PIECE = 8192; // labels made comparable before others have their turn
export const SORTS = ["feature", "label", "firing_rate", "score", "max"];
const FIGURES = { firing_rate: "firing_rate", score: "score", max: "max_activation" };

// Sorted upwards where nothing is said; figures go downwards.
export function usualOrder(sort) {
  return sort === "feature" || sort === "label" ? "asc" : "desc";
}

// As texts are compared: whatever their case, and however their accents are written; ß is ss.
export function folded(text) {
  return text.normalize("NFKC").toUpperCase().toLowerCase().normalize("NFKC");
}

export async function loadTable() {
  const columns = await getJson("/v1/features/table");
  const texts = new Array(columns.width);
  for (let start = 0; start < columns.width; start += PIECE) {
    const end = Math.min(start + PIECE, columns.width);
    for (let i = start; i < end; i += 1) texts[i] = columns.label[i] === null ? null : folded(columns.label[i]);
    await new Promise((resolve) => setTimeout(resolve));
  }
  return new Table(columns, texts);
}

export class Table {
  #texts;
  #orders = new Map();

  constructor(columns, texts) {
    Object.assign(this, columns); // sae_id, width, sources, and the columns
    this.#texts = texts;
  }

  // Indices of the features that are wanted, in order. wanted: q, sort, order, labelled, alive, source, score.
  find(wanted) {
    const part = folded(wanted.q.trim());
    const number = /^[0-9]{1,9}$/.test(part) ? Number(part) : -1;
    const source = wanted.source === "" ? null : this.sources.indexOf(wanted.source);
    const found = this.#inOrder(wanted.sort, wanted.order).filter((i) =>
      (part === "" || i === number || (this.#texts[i] !== null && this.#texts[i].includes(part)))
      && (!wanted.labelled || this.label[i] !== null)
      && (!wanted.alive || this.firing_rate[i] !== 0)
      && (source === null || this.source[i] === source)
      && (wanted.score === null || (this.score[i] !== null && this.score[i] >= wanted.score)));
    return found;
  }

  // Without a value last either way, equal ones by number.
  #inOrder(sort, order) {
    const name = `${sort} ${order}`;
    if (!this.#orders.has(name)) this.#orders.set(name, this.#sorted(sort, order === "desc"));
    return this.#orders.get(name);
  }

  #sorted(sort, isDown) {
    const all = Uint32Array.from({ length: this.width }, (_, i) => i);
    if (sort === "feature") return isDown ? all.reverse() : all;
    const values = sort === "label" ? this.#texts : this[FIGURES[sort]];
    const known = all.filter((i) => values[i] !== null);
    const unknown = all.filter((i) => values[i] === null);
    const sign = isDown ? -1 : 1;
    if (sort === "label") known.sort((a, b) => (values[a] < values[b] ? -sign : values[a] > values[b] ? sign : a - b));
    else {
      const figures = Float64Array.from(values, (value) => value ?? 0);
      known.sort((a, b) => sign * (figures[a] - figures[b]) || a - b);
    }
    const joined = new Uint32Array(this.width);
    joined.set(known);
    joined.set(unknown, known.length);
    return joined;
  }
}
