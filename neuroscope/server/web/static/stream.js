// The features stream: one subscription with its own settings, which goes on where it was after a break.

import { FEATURES, key, postJson } from "./api.js";

const EVENTS = ["feature_activation", "prompt_activation", "generation_complete", "generation_error", "gap", "shutdown"];
const RETRY_MS = 2000;

// listen({ onevent(name, data, id), onstate(state, message) }) -> { configure(query), close() }
// States: connecting, live, reconnecting, refused. `query`: top_k, filter, threshold, min_activation, features,
// align, completion_id. A new query opens the stream anew, after the newest event that was seen.
export function listen({ onevent, onstate }, query = {}) {
  let source = null;
  let timer = null;
  let last = "";
  let asked = query;
  let closed = false;
  let attempt = 0; // of which connection an answer is: a late one of an earlier connection is nothing any more

  async function open() {
    const mine = ++attempt;
    const words = new URLSearchParams(Object.entries(asked).filter(([, v]) => v !== null && v !== undefined && v !== ""));
    if (last) words.set("since", last);
    if (key()) {
      try {
        words.set("ticket", (await postJson("/v1/features/ticket")).ticket);
      } catch (error) {
        if (mine !== attempt || closed) return;
        if (error.status === 401 || error.status === 403) return onstate("refused", error.message);
        return again();
      }
      if (mine !== attempt || closed) return;
    }
    source = new EventSource(`${FEATURES}/v1/features/stream?${words}`);
    const opened = source;
    opened.onopen = () => opened === source && onstate("live", "");
    opened.onerror = () => opened === source && again(); // its own reconnection would send a used ticket
    for (const name of EVENTS) {
      opened.addEventListener(name, (event) => {
        if (opened !== source) return;
        last = event.lastEventId || last;
        onevent(name, JSON.parse(event.data), event.lastEventId);
      });
    }
  }

  function drop() {
    source?.close();
    source = null;
    clearTimeout(timer);
  }

  function again() {
    drop();
    if (closed) return;
    onstate("reconnecting", "");
    timer = setTimeout(open, RETRY_MS);
  }

  onstate("connecting", "");
  open();
  return {
    configure(changed) {
      asked = changed;
      drop();
      open();
    },
    close() {
      closed = true;
      attempt += 1;
      drop();
    },
  };
}
