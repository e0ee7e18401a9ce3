// Files of the reader's own disk: opened by button or drop, and saved.

import { h } from "./dom.js";

// Has the browser save `blob` as a file of this name.
export function saveAs(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser reads it after the click
}

// A button that asks for a recording; `onfile(file)` hears which.
export function fileButton(text, onfile) {
  const input = h("input", { type: "file", accept: ".json,application/json", hidden: true });
  input.addEventListener("change", () => {
    const [file] = input.files;
    input.value = ""; // so that the same file can be chosen again
    if (file) onfile(file);
  });
  return [h("button", { type: "button", onclick: () => input.click() }, text), input];
}

// A file that is dropped anywhere on `element`; nothing else that is dropped there leaves the page.
export function acceptDrop(element, onfile) {
  element.addEventListener("dragover", (event) => {
    event.preventDefault();
    element.classList.add("dropping");
  });
  element.addEventListener("dragleave", (event) => {
    if (!element.contains(event.relatedTarget)) element.classList.remove("dropping");
  });
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    element.classList.remove("dropping");
    const [file] = event.dataTransfer.files;
    if (file) onfile(file);
  });
}
