// The features stream: one subscription with its own settings, which goes on where it was after a break.
// Read with fetch and not with EventSource, which cannot send a key and does not tell why it was refused.

import { FEATURES, request } from "./api.js";

const RETRY_MS = 2000;
const SILENCE_MS = 120_000; // the server says something every serve.heartbeat_s seconds; after this it is gone
const HIDDEN_MS = 5000; // browsers have six connections to a server, for all tabs together: one that nobody sees gives its own back

// listen({ onevent(name, data, id), onstate(state, message) }) -> { configure(query, since), close() }
// States: connecting, live, reconnecting, refused (with the server's words). The first event of a connection is "open",
// whose id is where it begins. `query`: top_k, filter, threshold, min_activation, features, align, completion_id.
// A tab in the background goes on where it was when it is looked at again.
// A new query opens the stream anew: after the newest event that was seen, or after `since` ("0": all that the server
// still has; "": the beginning of completion_id, else now).
export function listen({ onevent, onstate }, query = {}, since = "") {
  let asked = query;
  let last = since;
  let timer = null;
  let silence = null;
  let controller = null;
  let isResting = false;
  let unseen = null; // timer

  async function open() {
    if (isResting) return;
    const mine = new AbortController(); // an answer of an earlier connection is nothing any more
    controller = mine;
    const words = new URLSearchParams(Object.entries(asked).filter(([, v]) => v !== null && v !== undefined && v !== ""));
    if (last) words.set("since", last);
    try {
      const response = await request(`${FEATURES}/v1/features/stream?${words}`, { signal: mine.signal });
      onstate("live", "");
      await read(response.body, mine);
      if (mine === controller) again("");
    } catch (error) {
      if (mine !== controller) return;
      if (error.status >= 400 && error.status < 500 && error.status !== 429) return onstate("refused", error.message);
      again(error.status ? error.message : "");
    }
  }

  async function read(body, mine) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      clearTimeout(silence);
      silence = setTimeout(() => mine.abort(), SILENCE_MS);
      const { done, value } = await reader.read();
      if (done || mine !== controller) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: ?(.*)/s, 2)));
        last = fields.id ?? last;
        if (fields.data !== undefined) onevent(fields.event, JSON.parse(fields.data), fields.id);
        else if (fields.id !== undefined) onevent("open", null, fields.id);
        if (mine !== controller) return; // whoever heard this has asked for something else
      }
    }
  }

  function onvisibility() {
    clearTimeout(unseen);
    if (document.visibilityState === "hidden") unseen = setTimeout(rest, HIDDEN_MS);
    else if (isResting) {
      isResting = false;
      open();
    }
  }

  function rest() {
    isResting = true;
    drop();
  }

  function drop() {
    const dropped = controller;
    controller = null;
    clearTimeout(timer);
    clearTimeout(silence);
    dropped?.abort();
  }

  function again(message) {
    drop();
    onstate("reconnecting", message);
    timer = setTimeout(open, RETRY_MS);
  }

  document.addEventListener("visibilitychange", onvisibility);
  onstate("connecting", "");
  open();
  onvisibility();
  return {
    configure(changed, from = last) {
      asked = changed;
      last = from;
      drop();
      open();
    },
    close() {
      document.removeEventListener("visibilitychange", onvisibility);
      clearTimeout(unseen);
      drop();
    },
  };
}
