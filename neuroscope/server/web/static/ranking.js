// Which of a token's active features are shown, and in which order: the formula of neuroscope/ranking.py, for
// recordings, which hold every active feature. A test holds the two together.

export const FILTERS = ["frequency", "frequency_surprise", "surprise", "combined", "none"];

const DROPS_FREQUENT = new Set(["frequency", "combined", "frequency_surprise"]);
const ORDERS_BY_SURPRISE = new Set(["surprise", "frequency_surprise"]);

// `active`: [[index, activation, surprise or null]]; `rateOf(index)`: share of tokens, or null where unknown.
// Returns { shown: the first `topK` kept, best first, filteredCount: those the filter took out before them }.
export function select(active, { filter, threshold, topK, minActivation = 0 }, rateOf) {
  const least = Math.fround(minActivation); // activations are 32-bit numbers, and so is what they are compared with
  const bySurprise = ORDERS_BY_SURPRISE.has(filter);
  const ranked = active
    .map((row) => ({ row, activation: Math.fround(row[1]), surprise: bySurprise ? (row[2] ?? -Infinity) : 0 }))
    .filter(({ activation }) => activation > 0 && activation >= least)
    .sort((a, b) => descending(a.surprise, b.surprise) || descending(a.activation, b.activation) || a.row[0] - b.row[0]);
  const shown = [];
  let filteredCount = 0;
  for (const { row } of ranked) {
    if (shown.length === topK) break;
    if (DROPS_FREQUENT.has(filter) && rateOf(row[0]) > threshold) filteredCount += 1; // null > 0.5 is false: kept
    else shown.push(row);
  }
  return { shown, filteredCount };
}

function descending(a, b) {
  return a === b ? 0 : a > b ? -1 : 1; // b - a would be NaN for two that are unknown
}
