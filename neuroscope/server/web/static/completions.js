// The answers on the features stream, whoever asked for them, put together from its events.
//
// What is not known is said: a token's index tells how many before it were missed, an answer's end how many after.

import { createCompletion, tokenOf } from "./completion.js";

const KEPT = 50;

// createCompletions(onchange) -> { all: Map of id -> Completion, take(name, data, id), of(id), running(), replay(until) }
// onchange(what, completion, more): "new" · "prompt" and "token" (more: the Token) · "again" (more: the Token, seen
// before and now as other settings show it) · "on" (begun before this page, and still being written) · "gap" (more: { after, missed }) · "end" · "gone" (left for newer ones) ·
// "missed" (no completion; more: { missed, reason }) · "restarted" · "shutdown" (more: the reason)
// A completion has besides: state "running", "ended", "failed" or "lost"; error; degraded; before (the stream's id
// where it begins); seen_at (null: its beginning was there before this page); next (index of the next token).
export function createCompletions(onchange) {
  const all = new Map();
  let last = "0"; // id of the newest event
  let newest = "0"; // of all; an event that is not after it has been seen, or was there before this page

  function of(id, seenAt = new Date()) {
    let completion = all.get(id);
    if (!completion) {
      completion = { ...createCompletion(id), state: "running", error: null, degraded: [], before: last, seen_at: seenAt, goesOn: false, next: 0, nextPrompt: 0, kept: new Map() };
      all.set(id, completion);
      while (all.size > KEPT) {
        const [oldest, gone] = all.entries().next().value;
        all.delete(oldest);
        onchange("gone", gone);
      }
      onchange("new", completion);
    }
    return completion;
  }

  const seen = (id) => (isAfter(id, newest) ? new Date() : null);

  const TAKEN = {
    feature_activation(data, id) {
      const completion = of(data.completion_id, seen(id));
      completion.layer = data.layer;
      if (completion.state === "running") loseOthers(completion);
      if (completion.seen_at === null && !completion.goesOn && isAfter(id, newest)) {
        completion.goesOn = true;
        onchange("on", completion);
      }
      const token = tokenOf("answer", data.token_index, data);
      if (data.token_index < completion.next) return again(completion, completion.kept.get(`a${token.index}`), token);
      missing(completion, data.token_index);
      completion.next = data.token_index + 1;
      completion.kept.set(`a${token.index}`, token);
      completion.tokens.push(token);
      onchange("token", completion, token);
    },
    prompt_activation(data, id) {
      const completion = of(data.completion_id, seen(id));
      completion.layer = data.layer;
      for (const said of data.tokens) {
        const token = tokenOf("prompt", said.position, said);
        if (said.position < completion.nextPrompt) {
          again(completion, completion.kept.get(`p${token.index}`), token);
          continue;
        }
        completion.nextPrompt = said.position + 1;
        completion.kept.set(`p${token.index}`, token);
        completion.prompt.push(token);
        onchange("prompt", completion, token);
      }
    },
    generation_complete(data, id) {
      const completion = of(data.completion_id, seen(id));
      completion.model = data.model;
      if (completion.state === "ended") return;
      missing(completion, data.total_tokens);
      Object.assign(completion, { state: "ended", finish_reason: data.finish_reason, degraded: data.degraded });
      onchange("end", completion);
    },
    generation_error(data, id) {
      const completion = of(data.completion_id, seen(id));
      completion.model = data.model;
      if (completion.state === "failed") return;
      end(completion, "failed", data.message);
    },
    gap(data, id) {
      if (data.missed === null) {
        for (const completion of running()) end(completion, "lost", "The server was restarted while this answer was written.");
        newest = "0";
        onchange("restarted", null, data.reason);
      } else if (isAfter(id, newest)) {
        const unseen = runOf(id) === runOf(newest) ? Math.min(data.missed, sequence(id) - sequence(newest)) : data.missed;
        onchange("missed", null, { ...data, missed: unseen });
      }
    },
    shutdown(data) {
      onchange("shutdown", null, data.reason);
    },
  };

  function again(completion, known, token) {
    if (!known) return; // it was missed, and its place has been marked
    Object.assign(known, { features: token.features, filtered_count: token.filtered_count, whole: token.whole, l0: token.l0, fvu: token.fvu });
    onchange("again", completion, known);
  }

  function missing(completion, index) {
    if (index <= completion.next) return;
    const gap = { after: completion.next - 1, missed: index - completion.next };
    completion.next = index;
    completion.gaps.push(gap);
    onchange("gap", completion, gap);
  }

  const running = () => [...all.values()].filter((completion) => completion.state === "running");

  // The model writes one answer at a time: when another goes on, those before it have ended, unseen.
  function loseOthers(completion) {
    for (const other of running()) if (other !== completion && other.tokens.length > 0) end(other, "lost", "The end of this answer was missed.");
  }

  function end(completion, state, message) {
    Object.assign(completion, { state, error: message, finish_reason: completion.finish_reason ?? "error" });
    onchange("end", completion);
  }

  return {
    all,
    of,
    running,
    take(name, data, id) {
      TAKEN[name]?.(data, id);
      if (id) {
        last = id;
        if (isAfter(id, newest)) newest = id;
      }
    },
    // Events up to this id were there before.
    replay(until) {
      newest = until;
    },
  };
}

// Ids are RUN-NUMBER; of another run nothing is known, so that it counts as news.
function isAfter(id, other) {
  return runOf(id) !== runOf(other) || sequence(id) > sequence(other);
}

const runOf = (id) => id.split("-")[0];
const sequence = (id) => Number(id.split("-")[1]);
