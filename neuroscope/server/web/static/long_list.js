// A grid of very many rows of one height, of which only those in view are elements; they are used again on scrolling.
//
// Arrow keys, Page Up and Down, Home and End move the current row, Enter opens it. Screen readers hear of the current
// row (aria-activedescendant) and of how many there are.

import { h } from "./dom.js";

export const ROW_PX = 36;
const BEYOND = 6; // rows kept above and below the view
const TALLEST_PX = 8_000_000; // browsers do not lay out much more: beyond it a pixel of scrolling is more than one

// frame: the element that scrolls. make() -> a row's cells; write(cells, item): fill them; open(item).
export class LongList {
  #frame;
  #body;
  #pool = [];
  #items = new Uint32Array(0);
  #make;
  #write;
  #open;
  #isDue = false;
  current = 0;

  constructor(frame, { head, make, write, open }) {
    this.#frame = frame;
    this.#make = make;
    this.#write = write;
    this.#open = open;
    this.#body = h("div", { class: "rows", role: "presentation" });
    frame.append(head, this.#body);
    frame.addEventListener("scroll", () => this.#later(), { passive: true });
    frame.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#later()).observe(frame);
  }

  get count() {
    return this.#items.length;
  }

  // Shows other items, from the top, or where `place` ({ top, current }) says.
  show(items, { top = 0, current = 0 } = {}) {
    this.#items = items;
    this.current = Math.min(current, Math.max(0, items.length - 1));
    this.#frame.setAttribute("aria-rowcount", String(items.length + 1));
    this.#body.style.height = `${Math.min(items.length * ROW_PX, TALLEST_PX)}px`;
    for (const row of this.#pool) row.at = -1; // the same places hold other items now
    this.#frame.scrollTop = top;
    this.#draw();
  }

  get place() {
    return { top: this.#frame.scrollTop, current: this.current };
  }

  #room() {
    return Math.max(ROW_PX, this.#frame.clientHeight - this.#body.offsetTop); // below the head, which stays
  }

  // Pixels of rows for a pixel of scrolling: 1 but for millions of rows.
  #stretch() {
    const whole = this.#items.length * ROW_PX - this.#room();
    const seen = this.#body.offsetHeight - this.#room();
    return whole > 0 && seen > 0 ? Math.max(1, whole / seen) : 1;
  }

  #later() {
    if (!this.#isDue) requestAnimationFrame(() => this.#draw());
    this.#isDue = true;
  }

  #draw() {
    this.#isDue = false;
    const scrolled = this.#frame.scrollTop;
    const top = scrolled * this.#stretch();
    const first = Math.max(0, Math.floor(top / ROW_PX) - BEYOND);
    const end = Math.min(this.#items.length, Math.ceil((top + this.#room()) / ROW_PX) + BEYOND);
    while (this.#pool.length < end - first) this.#grow();
    const used = new Set();
    for (let at = first; at < end; at += 1) {
      const row = this.#pool[at % this.#pool.length];
      used.add(row);
      if (row.at !== at) this.#fill(row, at);
      row.element.style.transform = `translateY(${Math.round(scrolled + at * ROW_PX - top)}px)`;
      row.element.classList.toggle("current", at === this.current);
      row.element.setAttribute("aria-selected", String(at === this.current));
    }
    for (const row of this.#pool) row.element.hidden = !used.has(row);
    const isSeen = this.current >= first && this.current < end;
    if (isSeen) this.#frame.setAttribute("aria-activedescendant", `row-${this.current}`);
    else this.#frame.removeAttribute("aria-activedescendant");
  }

  #grow() {
    const cells = this.#make();
    const row = { at: -1, cells, element: h("div", { class: "row", role: "row" }, cells) };
    row.element.addEventListener("click", (event) => {
      this.current = row.at;
      this.#later();
      if (!event.target.closest("a")) this.#open(this.#items[row.at]);
    });
    this.#pool.push(row);
    for (const other of this.#pool) other.at = -1; // which row has which place depends on how many there are
    this.#body.append(row.element);
  }

  #fill(row, at) {
    row.at = at;
    row.element.id = `row-${at}`;
    row.element.setAttribute("aria-rowindex", String(at + 2)); // the head is row 1
    this.#write(row.cells, this.#items[at]);
  }

  #key(event) {
    if (event.target !== this.#frame || event.ctrlKey || event.altKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.#room() / ROW_PX) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && this.count) this.#open(this.#items[this.current]);
    else if (event.key in moves) this.#moveTo(this.current + moves[event.key]);
    else return;
    event.preventDefault();
  }

  #moveTo(aim) {
    this.current = Math.max(0, Math.min(this.count - 1, aim));
    const stretch = this.#stretch();
    const top = this.#frame.scrollTop * stretch;
    const above = this.current * ROW_PX;
    const below = above + ROW_PX - this.#room();
    if (above < top) this.#frame.scrollTop = Math.floor(above / stretch);
    else if (below > top) this.#frame.scrollTop = Math.ceil(below / stretch);
    this.#draw();
  }
}
