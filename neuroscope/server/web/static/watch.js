// The activations of pinned features on every token, also where the filter or top-k leaves them out: a second
// subscription for these features alone, of the answer that is shown.

import { listen } from "./stream.js";

// createWatch({ ontold(token) }) -> { watch(indices), of(completion), fill(completion, token) }
export function createWatch({ ontold }) {
  let stream = null;
  let indices = [];
  let completion = null;
  let known = new Map(); // position -> Map of index -> activation, of `completion`
  let byPosition = new Map();

  function restart() {
    known = new Map();
    if (indices.length === 0 || !completion?.id) {
      stream?.close();
      stream = null;
      return;
    }
    const query = { features: indices.join(","), filter: "none", min_activation: 0, top_k: 1000, completion_id: completion.id };
    if (stream) stream.configure(query, "");
    else stream = listen({ onevent, onstate: () => {} }, query);
  }

  function onevent(name, data) {
    if (name === "feature_activation") learn(data);
    if (name === "prompt_activation") data.tokens.forEach(learn);
  }

  function learn({ position, top_features: features }) {
    const activations = new Map(indices.map((index) => [index, 0]));
    for (const { index, activation } of features) activations.set(index, activation);
    known.set(position, activations);
    const token = byPosition.get(position);
    if (!token) return;
    token.others = activations;
    ontold(token);
  }

  return {
    watch(wanted) {
      if (wanted.join() === indices.join()) return;
      indices = wanted;
      restart();
    },
    of(shown) {
      if (shown === completion) return;
      completion = shown;
      byPosition = new Map([...shown.prompt, ...shown.tokens].map((token) => [token.position, token]));
      restart();
    },
    fill(of, token) {
      if (of !== completion) return;
      byPosition.set(token.position, token);
      token.others = known.get(token.position) ?? null;
    },
  };
}
