// Plays a row of tokens: where in it we are, and the controls that move there. What is shown is the caller's business.

import { h } from "./dom.js";

const RATES = [2, 5, 10, 25, 100];

// `onmove(position, before)` hears of every move; a position is how many tokens have appeared, from 0 to `length`.
// Begins at the end, with everything there. Returns { element, pause() }.
export function createPlayer({ length, onmove }) {
  let position = length;
  let rate = 10;
  let playing = null; // { at: time of the last frame, due: tokens that should have come since, in fractions }

  const play = h("button", { type: "button", class: "main play", title: "Space", onclick: toggle });
  const back = h("button", { type: "button", "aria-label": "One token back", onclick: () => go(position - 1) }, "‹");
  const forward = h("button", { type: "button", "aria-label": "One token on", onclick: () => go(position + 1) }, "›");
  const slider = h("input", { type: "range", min: 0, max: length, step: 1, "aria-label": "Token", oninput: () => go(Number(slider.value)) });
  const place = h("output", { class: "place" });
  const speed = h("select", { onchange: () => { rate = Number(speed.value); } },
    RATES.map((value) => h("option", { value: String(value), selected: value === rate }, `${value} tokens/s`)));
  const element = h("div", { class: "player", role: "group", "aria-label": "Replay" },
    play, back, forward, slider, place, h("label", {}, h("span", { class: "unseen" }, "Speed"), speed));

  function move(next) {
    const before = position;
    position = Math.max(0, Math.min(length, next));
    if (position !== before) onmove(position, before);
    if (position === length) playing = null;
    show();
  }

  // By hand: it stops playing.
  function go(to) {
    playing = null;
    move(to);
  }

  function toggle() {
    if (playing) return pause();
    if (position === length) move(0);
    playing = { at: performance.now(), due: 0 };
    show();
    requestAnimationFrame(frame);
  }

  function pause() {
    playing = null;
    show();
  }

  function frame(now) {
    if (!playing) return;
    playing.due += (Math.max(0, now - playing.at) / 1000) * rate;
    playing.at = now;
    const whole = Math.floor(playing.due);
    playing.due -= whole;
    if (whole) move(position + whole);
    if (playing) requestAnimationFrame(frame);
  }

  function show() {
    play.textContent = playing ? "Pause" : position === length ? "Replay" : "Play";
    slider.value = position;
    slider.setAttribute("aria-valuetext", `${position} of ${length} tokens`);
    place.textContent = `${position} of ${length}`;
    back.setAttribute("aria-disabled", position === 0); // a disabled button would lose the focus
    forward.setAttribute("aria-disabled", position === length);
  }

  // Space plays, wherever nothing else waits for it.
  document.addEventListener("keydown", (event) => {
    if (event.key !== " " || event.ctrlKey || event.metaKey || event.altKey || !element.isConnected) return;
    if (event.target.closest("button, select, textarea, summary, a, dialog, input:not([type=range])")) return;
    event.preventDefault();
    toggle();
  });

  show();
  return { element, pause };
}
