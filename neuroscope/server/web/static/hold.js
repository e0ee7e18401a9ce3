// Rows that change by themselves stand still while somebody aims at one of them: as long as a pointer moves over them,
// or keys are pressed in them. One that only rests there holds nothing.

const STILL_MS = 1500;

// createHold(element, onend) -> { is, end() }; `onend` hears when what has changed meanwhile may be shown.
export function createHold(element, onend) {
  let timer = null;

  function aim() {
    clearTimeout(timer);
    timer = setTimeout(end, STILL_MS);
  }

  function end() {
    if (timer === null) return;
    clearTimeout(timer);
    timer = null;
    onend();
  }

  element.addEventListener("pointermove", (event) => event.pointerType !== "touch" && aim());
  element.addEventListener("pointerleave", end);
  element.addEventListener("focusin", aim);
  element.addEventListener("keydown", aim);
  return {
    get is() {
      return timer !== null;
    },
    end,
  };
}
