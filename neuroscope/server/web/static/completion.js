// One answer and its tokens, as the token view shows them: from the stream (completions.js) or from a recording.
//
// Completion: { id, model, layer, prompt: [Token], tokens: [Token], finish_reason, gaps: [{ after, missed }] }
//   gaps: so many tokens are not known after the token of the answer with that index; -1: at its beginning
// Token: { place: "prompt" | "answer", index, position, token, token_id, content, l0, fvu,
//   features: [{ index, label, activation, surprise }], filtered_count, others }
//   others: Map of index -> activation for features beyond `features` whose activation is known, 0 included
//   whole: true where a feature that stands in neither is known to be silent

export function createCompletion(id) {
  return { id, model: null, layer: null, prompt: [], tokens: [], finish_reason: null, gaps: [] };
}

// What an event, or a recording, says of a token, as a Token.
export function tokenOf(place, index, said) {
  return {
    place,
    index,
    position: said.position,
    token: said.token,
    token_id: said.token_id,
    content: said.content ?? true,
    l0: said.l0,
    fvu: said.fvu,
    features: said.top_features,
    filtered_count: said.filtered_count,
    others: null,
    whole: said.top_features.length === said.l0,
  };
}

// The activation of a feature on a token; null where the page was not told: it may have been filtered out.
export function activationOf(token, index) {
  const shown = token.features.find((feature) => feature.index === index);
  if (shown) return shown.activation;
  return token.others?.get(index) ?? (token.whole ? 0 : null);
}

// The largest surprise of the features shown for a token; null without any.
export function largestSurprise(token) {
  let largest = null;
  for (const { surprise } of token.features) if (surprise !== null && (largest === null || surprise > largest)) largest = surprise;
  return largest;
}
