// A text as its tokens, each on a ground as strong as one feature is active there. Values are told on hover, on a
// tap, and with the arrow keys, in one small panel that floats over the page and moves nothing.

import { h } from "./dom.js";
import { figure, inText, visible } from "./format.js";

const FAINTEST = 0.1; // of the strongest ground: what is active at all can be seen

let tip = null;

// tokens: texts. options: values (an activation a token; null where not known), scale (of the strongest ground),
// centre (place of the token that an example is about), name (for readers of the screen).
export function heatLine(tokens, { values = null, scale = 1, centre = null, name = "Tokens" } = {}) {
  const line = h("p", { class: "heat", tabindex: 0, role: "group", "aria-label": `${name}. Arrow keys go through the tokens.` },
    tokens.map((text, place) => h("span", { class: place === centre ? "centre" : null }, inText(text))));
  line.heat = { tokens, values: [], at: centre ?? 0 };
  if (values) colour(line, values, scale);
  line.addEventListener("pointerover", (event) => event.target.parentNode === line && tell(line, event.target));
  line.addEventListener("pointerleave", hush);
  line.addEventListener("focus", () => tell(line, line.children[line.heat.at]));
  line.addEventListener("blur", hush);
  line.addEventListener("keydown", (event) => walk(line, event));
  return line;
}

// Sets the grounds; the line keeps its size. Their strength is the root of the share, so that weak ones differ too.
export function colour(line, values, scale) {
  line.heat.values = values;
  values.forEach((value, place) => {
    const span = line.children[place];
    const share = value > 0 && scale > 0 ? Math.min(1, Math.max(FAINTEST, Math.sqrt(value / scale))) : 0;
    span.classList.toggle("on", share > 0);
    span.style.setProperty("--share", `${(100 * share).toFixed(1)}%`);
  });
}

function walk(line, event) {
  const steps = { ArrowRight: 1, ArrowLeft: -1 };
  if (event.key === "Escape") return hush();
  if (!(event.key in steps) && event.key !== "Home" && event.key !== "End") return;
  event.preventDefault();
  const last = line.children.length - 1;
  const aim = event.key === "Home" ? 0 : event.key === "End" ? last : line.heat.at + steps[event.key];
  line.heat.at = Math.max(0, Math.min(last, aim));
  tell(line, line.children[line.heat.at]);
}

function tell(line, span) {
  if (!span) return;
  const place = [...line.children].indexOf(span);
  const value = line.heat.values[place];
  const said = value === undefined || value === null ? "not measured" : value === 0 ? "silent" : figure(value);
  tip ??= document.body.appendChild(h("div", { class: "tip", role: "status" }));
  line.querySelector(".told")?.classList.remove("told");
  span.classList.add("told");
  tip.replaceChildren(h("b", { class: "mono" }, visible(line.heat.tokens[place]).slice(0, 60)), ` ${said}`);
  tip.hidden = false;
  const box = span.getBoundingClientRect();
  const width = tip.offsetWidth;
  tip.style.left = `${Math.max(4, Math.min(box.left, document.documentElement.clientWidth - width - 4))}px`;
  tip.style.top = `${box.top > 44 ? box.top - tip.offsetHeight - 4 : box.bottom + 4}px`;
}

function hush() {
  if (!tip) return;
  tip.hidden = true;
  document.querySelector(".heat .told")?.classList.remove("told");
}
