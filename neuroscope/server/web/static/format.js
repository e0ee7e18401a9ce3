// Numbers and tokens as people read them.

const whole = new Intl.NumberFormat("en-GB");

export function count(n) {
  return n === null || n === undefined ? "–" : whole.format(n);
}

// 1 token, 1,024 tokens
export function counted(n, word) {
  return `${count(n)} ${word}${n === 1 ? "" : "s"}`;
}

// Three significant digits, plain where that is short: 61.6, 0.0873, 1.2e-7
export function figure(x, digits = 3) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-4) return x.toExponential(digits - 1);
  return size >= 1000 ? whole.format(Math.round(x)) : String(Number(x.toPrecision(digits)));
}

export function percent(x) {
  if (x === null || x === undefined) return "–";
  return x > 0 && x < 0.0001 ? `${(100 * x).toExponential(1)}%` : `${figure(100 * x, 3)}%`;
}

export function surprise(z) {
  return signed(z, 2);
}

// A figure that is a difference: +410, −0.25
export function signed(x, digits = 3) {
  return x === null || x === undefined ? "–" : `${x >= 0 ? "+" : "−"}${figure(Math.abs(x), digits)}`;
}

// A time of the server's (ISO 8601, UTC) on the reader's clock.
export function moment(text) {
  const time = new Date(text ?? "");
  return Number.isNaN(time.getTime()) ? (text ?? "–") : time.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  return n < 1000 ? `${n} B` : n < 1e6 ? `${Math.round(n / 1e3)} kB` : `${(n / 1e6).toFixed(1)} MB`;
}

// What cannot be seen made visible, for a token shown by itself: "\n" as "↵", a token without text as "∅".
export function visible(text) {
  if (text === "") return "∅";
  return inText(text).replace(/^ +| +$/g, (s) => "·".repeat(s.length));
}

// The same inside a text, where a blank is a blank.
export function inText(text) {
  if (text !== "" && UNSEEN.test(text)) return [...text].map((c) => `⟨${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`).join("");
  return text.replaceAll("\n", "↵").replaceAll("\r", "␍").replaceAll("\t", "⇥")
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g, (c) => (c === "\u007f" ? "␡" : String.fromCodePoint(0x2400 + c.codePointAt(0))))
    .replace(/[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]/g, "⍰");
}

const UNSEEN = /^[\u00ad\u034f\u180e\u200b-\u200d\u2060-\u2064\ufe00-\ufe0f\ufeff]+$/u; // nothing else in it
