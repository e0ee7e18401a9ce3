// An answer as a row of tokens that can be pointed at, walked through with the arrow keys, and tinted.
// Its text is the answer's, character by character: marks for what cannot be seen are drawn by the style sheet.

import { h } from "./dom.js";

const UNSEEN = /^[\s\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\u0000-\u001f]*$/;
const BIDI = /[\u202a-\u202e\u2066-\u2069]/; // would turn round what follows, were it not kept inside its token
const BREAK = /[\n\r\u2028\u2029]$/;

// createTokens({ onpoint(token, how) }): `how` is "hover" (with null: left), "choose", "clear", or
// "enter": on to its features.
// -> { element, add(token), gap(missed, place), clear(), clearChoice(),
//    tint({ value(token), most, marksUntold }), repaint(token), choose(token, focus) }
export function createTokens({ onpoint }) {
  const prompt = h("div", { class: "prompt-tokens", role: "group", "aria-label": "Prompt" });
  const answer = h("div", { class: "answer-tokens", role: "group", "aria-label": "Answer" });
  const element = h("div", { class: "tokens", role: "listbox", "aria-label": "Tokens; arrow keys go from one to the next", dir: "auto" }, prompt, answer);
  let tinting = { value: () => null, most: 1 };
  let most = 1;
  let chosen = null;
  let stop = null; // the one token that Tab reaches
  const open = new Map(); // place -> the block that the next token goes to
  const spanFor = new WeakMap(); // Token -> its element

  function add(token) {
    const unseen = UNSEEN.test(token.token);
    const span = h("span", { class: "token", role: "option", tabindex: -1 }, token.token);
    if (token.token === "") span.classList.add("empty");
    else if (unseen && /[^ ]/.test(token.token)) span.classList.add("unseen-text");
    if (BREAK.test(token.token)) span.classList.add("break");
    if (BIDI.test(token.token)) span.classList.add("bidi");
    if (!token.content) span.classList.add("scaffold");
    span.token = token;
    spanFor.set(token, span);
    paint(span);
    block(token.place).append(span);
    if (BREAK.test(token.token)) open.delete(token.place); // short blocks are laid out fast, however long the answer
    if (stop === null || (stop.token.place === "prompt" && token.place === "answer" && chosen === null)) reach(span);
  }

  function block(place) {
    let last = open.get(place);
    if (!last) {
      last = h("div", { class: "line", role: "presentation" });
      open.set(place, last);
      (place === "prompt" ? prompt : answer).append(last);
    }
    return last;
  }

  function gap(missed, place = "answer") {
    const text = missed === null ? "tokens missed" : `${missed} ${missed === 1 ? "token" : "tokens"} missed`;
    block(place).append(h("span", { class: "gap", "data-text": `⟨${text}⟩`, "aria-label": text, role: "option", "aria-disabled": true }));
  }

  function reach(span) {
    stop?.setAttribute("tabindex", -1);
    stop = span;
    stop.setAttribute("tabindex", 0);
  }

  function paint(span) {
    const value = tinting.value(span.token);
    if (value > most && span.token.content) { // control tokens go far beyond all others, and would fade them out
      most = value;
      element.style.setProperty("--most", most);
    }
    span.classList.toggle("untold", value === null && tinting.marksUntold === true);
    if (value > 0) span.style.setProperty("--t", value);
    else span.style.removeProperty("--t");
  }

  const spans = () => element.getElementsByClassName("token");
  const spanOf = (target) => (target.closest ? target.closest(".token") : null);

  function choose(span, focus) {
    chosen?.removeAttribute("aria-selected");
    chosen = span;
    if (span) {
      span.setAttribute("aria-selected", "true");
      reach(span);
      if (focus) span.focus();
    }
  }

  function clearChoice() {
    choose(null);
    onpoint(null, "clear");
  }

  function walk(event) {
    const at = spanOf(event.target);
    if (!at || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") return clearChoice();
    if (event.key === "Enter") {
      event.preventDefault();
      return onpoint(at.token, "enter");
    }
    const to = TARGETS[event.key]?.(at, spans());
    if (to === undefined) return;
    event.preventDefault();
    if (to) to.focus();
  }

  element.addEventListener("pointerover", (event) => event.pointerType !== "touch" && spanOf(event.target) && onpoint(spanOf(event.target).token, "hover"));
  element.addEventListener("pointerleave", () => onpoint(null, "hover"));
  element.addEventListener("keydown", walk);
  element.addEventListener("focusin", (event) => {
    const span = spanOf(event.target);
    if (!span) return;
    choose(span, false);
    onpoint(span.token, "choose");
  });

  return {
    element,
    add,
    gap,
    clearChoice,
    clear() {
      prompt.replaceChildren();
      answer.replaceChildren();
      open.clear();
      chosen = null;
      stop = null;
    },
    tint(changed) {
      tinting = changed;
      most = changed.most;
      element.style.setProperty("--most", most);
      for (const span of spans()) paint(span);
    },
    repaint(token) {
      const span = spanFor.get(token);
      if (span) paint(span);
    },
    choose(token, focus = false) {
      choose(spanFor.get(token) ?? null, focus);
    },
  };
}

const TARGETS = {
  ArrowRight: (at, all) => nextShown(at, all, 1),
  ArrowLeft: (at, all) => nextShown(at, all, -1),
  ArrowDown: (at, all) => onNextLine(at, all, 1),
  ArrowUp: (at, all) => onNextLine(at, all, -1),
  Home: (at, all) => [...all].find(isShown) ?? null,
  End: (at, all) => [...all].findLast(isShown) ?? null,
};

function isShown(span) {
  return span.getClientRects().length > 0;
}

function nextShown(at, all, step) {
  const list = [...all];
  for (let n = list.indexOf(at) + step; n >= 0 && n < list.length; n += step) if (isShown(list[n])) return list[n];
  return null;
}

// The token above or below: of the nearest line with one, that which lies nearest.
function onNextLine(at, all, step) {
  const list = [...all];
  const from = at.getClientRects()[0];
  let best = null;
  let line = null;
  for (let n = list.indexOf(at) + step; n >= 0 && n < list.length; n += step) {
    const box = list[n].getClientRects()[0];
    if (!box || Math.abs(box.top - from.top) < 4) continue;
    if (line !== null && Math.abs(box.top - line) >= 4) break;
    line ??= box.top;
    const distance = Math.abs(box.left - from.left);
    if (best === null || distance < best.distance) best = { distance, span: list[n] };
  }
  return best?.span ?? null;
}
