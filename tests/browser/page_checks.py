"""What tests of pages measure in the browser, and what they put into pages."""

from __future__ import annotations

from playwright.sync_api import Route

SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifts.push(entry.value);
}).observe({ type: "layout-shift", buffered: true });
"""
"""Script for a page's start: collects how far things moved that nobody had touched (the parts of CLS)."""
CONTRAST = """
(cell) => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const pen = canvas.getContext("2d");
  const rgb = (...layers) => {
    for (const layer of layers) { pen.fillStyle = layer; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  };
  const light = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;
  const style = getComputedStyle(cell);
  const back = light(rgb(getComputedStyle(document.body).backgroundColor, style.backgroundColor));
  const text = light(rgb(style.color));
  return (Math.max(back, text) + 0.05) / (Math.min(back, text) + 0.05);
}
"""
"""Function of an element: the contrast of its text with its ground, by WCAG; 4.5 is needed."""
HOSTILE = [
    '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>',
    "\u202eright to left\u202c שלום",
    "\u200b",
    "a\nb\r\tc\x00d\x1b[31m",
    "x" * 10_000,
    "\ufeff",
    "",
]
"""Texts that others may have written into labels and tokens."""


def refuse(route: Route, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
    """Answer as the server refuses."""
    error = {"message": message, "type": "server_error", "param": None, "code": code}
    route.fulfill(status=status, json={"error": error}, headers=headers or {})
