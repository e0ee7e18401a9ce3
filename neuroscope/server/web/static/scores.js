// How well labels hold: the balanced accuracy of a feature's label, asked one by one as they are looked at, and kept.

import { getJson } from "./api.js";

const MOST_WAITING = 20; // the latest looked at; others are asked for when looked at again

// createScores(onknown) -> of(index, asks): the score; null where there is none, undefined while it is not known
export function createScores(onknown) {
  const known = new Map();
  const waiting = new Set();
  let asking = false;

  async function ask() {
    asking = true;
    while (waiting.size > 0) {
      const index = [...waiting].at(-1);
      waiting.delete(index);
      try {
        const page = await getJson(`/v1/features/${index}`, { examples: "none" });
        known.set(index, page.balanced_accuracy);
      } catch {
        waiting.clear(); // the stream tells what is wrong with the server
      }
      onknown();
    }
    asking = false;
  }

  return (index, asks) => {
    if (asks && !known.has(index)) {
      waiting.delete(index);
      waiting.add(index);
      if (waiting.size > MOST_WAITING) waiting.delete(waiting.values().next().value);
      if (!asking) ask();
    }
    return known.get(index);
  };
}
