// Numbers and tokens as people read them.

const whole = new Intl.NumberFormat("en-GB");

export function count(n) {
  return n === null || n === undefined ? "–" : whole.format(n);
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
  return z === null || z === undefined ? "–" : `${z >= 0 ? "+" : "−"}${figure(Math.abs(z), 2)}`;
}

// What cannot be seen made visible, for a token shown by itself: "\n" as "↵", a token without text as "∅".
export function visible(text) {
  if (text === "") return "∅";
  return text.replaceAll("\n", "↵").replaceAll("\r", "␍").replaceAll("\t", "⇥").replace(/^ +| +$/g, (s) => "·".repeat(s.length))
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g, (c) => (c === "\u007f" ? "␡" : String.fromCodePoint(0x2400 + c.codePointAt(0))))
    .replace(/[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]/g, "⍰");
}
