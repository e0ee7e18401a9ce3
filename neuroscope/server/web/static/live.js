// The live page: asks the model, and shows the features of answers while they are written, whoever asked.

import { createAnswers } from "./answers.js";
import { getJson, postJson } from "./api.js";
import { createCompletion } from "./completion.js";
import { createCompletions } from "./completions.js";
import { createControls } from "./controls.js";
import { createConversation } from "./conversation.js";
import { byId, h } from "./dom.js";
import { count } from "./format.js";
import { createScores } from "./scores.js";
import { checkAgain, startShell } from "./shell.js";
import { listen } from "./stream.js";
import { createView } from "./view.js";
import { createWatch } from "./watch.js";

const REREAD_MS = 150;
const STREAM = { connecting: "connecting …", live: "live", reconnecting: "reconnecting …", refused: "refused" };

function startPage() {
  const main = byId("main");
  const stage = h("div", {});
  main.replaceChildren(h("h1", { class: "unseen" }, "Live"), stage);

  const state = h("span", { class: "stream-state", role: "status" }, STREAM.connecting);
  const notice = h("span", { class: "stream-notice" });
  const completions = createCompletions(onchange);
  const watched = createWatch({ ontold: (token) => view.told(token) });
  const view = createView(stage, { onwatch: (indices) => watched.watch(indices), scoreOf: createScores(() => view.refresh()) });
  const conversation = createConversation({ onbegin, ontext, onend, onchoose: (id) => show(completions.of(id)) });
  const answers = createAnswers({ onchoose: show, isOwn: (completion) => conversation.isOwn(completion.id) });
  const controls = createControls((query) => reread(query));
  const save = createSave(tell);
  let stream = null;
  let connected = false;
  let asked = {}; // the settings of the subscription; empty: the server's own
  let settings = 0; // how often the settings have changed
  let rereading = null;

  view.sticks = true;
  view.slots.bar.append(controls.element);
  view.slots.before.append(conversation.before);
  view.slots.after.append(conversation.after);
  view.slots.below.append(h("div", { class: "stream-line" }, state, notice, save.element), conversation.composer);
  view.slots.side.append(answers.element);
  conversation.promptBox.addEventListener("change", () => view.showPrompt(conversation.promptBox.checked));
  view.showPrompt(false);

  function show(completion) {
    view.show(completion);
    conversation.show(completion.id || null);
    answers.choose(completion.id);
    watched.of(completion);
    save.of(completion, conversation.turnOf(completion.id));
    view.sticks = true;
    told(completion);
    // What was received under other settings is read again, as far as the server still has it.
    if (completion.id && completion.settings !== settings) reread();
  }

  // What became of an answer, in words; its text where the stream has not all of it.
  function told(completion, aloud = false) {
    const said = conversation.turnOf(completion.id)?.error; // by the chat port, and shown with the question
    if (completion.error) view.finish(said ? "" : completion.error, aloud);
    else if (completion.finish_reason) view.finish(completion.finish_reason, aloud);
    tail(completion);
  }

  function tail(completion) {
    const text = conversation.textOf(completion.id);
    const is = text !== "" && (!connected || completion.state === "lost");
    view.tail(is ? text.slice(completion.tokens.reduce((length, token) => length + token.token.length, 0)) : "");
  }

  function onchange(what, completion, more) {
    if (completion) completion.settings ??= settings;
    const isShown = completion === view.completion;
    if (what === "new") {
      if (connected && answers.follows && !conversation.busy && completion.seen_at) show(completion);
    } else if (what === "on") {
      if (answers.follows && !conversation.busy && !view.completion.id) show(completion);
    } else if (what === "token" || what === "prompt") {
      watched.fill(completion, more);
      if (isShown && !rereading) view.append(more);
    } else if (what === "gap" && isShown) view.missed(more);
    else if (what === "again" && isShown) later();
    else if (what === "end" && isShown) {
      told(completion, true);
      save.of(completion, conversation.turnOf(completion.id));
    } else if (what === "gone") answers.remove(completion);
    else if (what === "missed") tell(`${count(more.missed)} events were missed: ${lower(more.reason)}`);
    else if (what === "restarted" || what === "shutdown") tell(more);
    if (completion && what !== "gone") answers.update(completion);
  }

  function tell(text) {
    notice.textContent = text;
    notice.title = text;
  }

  // Reads the shown answer again from its beginning, as the settings now are.
  function reread(query = asked) {
    if (query !== asked) settings += 1;
    asked = query;
    const completion = view.completion;
    if (completion.id) completion.settings = settings;
    stream?.configure(query, completion.before);
  }
  // Many tokens are seen again at once: the view is made anew when the last has come.
  function later() {
    clearTimeout(rereading);
    rereading = setTimeout(() => {
      rereading = null;
      view.show(view.completion);
      told(view.completion);
    }, REREAD_MS);
  }

  function onbegin(id) {
    if (id === null) return show(createCompletion(""));
    show(completions.of(id));
    answers.update(completions.of(id));
  }

  function ontext(id) {
    if (id === view.completion.id && !connected) tail(view.completion);
  }

  function onend(id, failed) {
    if (failed) checkAgain(); // the header says whether it is the server
    if (id !== null && id === view.completion.id) told(view.completion);
  }

  function onstate(name, message) {
    if ((name === "live" && state.dataset.state === "reconnecting") || name === "reconnecting") checkAgain();
    connected = name === "live";
    state.textContent = STREAM[name];
    state.dataset.state = name;
    if (message) tell(message);
    else if (name === "reconnecting") tell("The features stream broke off. What comes meanwhile is shown as far as the server keeps it.");
    if (view.completion.id) tail(view.completion);
  }

  function onevent(name, data, id) {
    if (name === "open") {
      if (!stream.begun) {
        stream.begun = true;
        completions.replay(id);
        stream.configure(asked, "0");
      } else if (notice.textContent.startsWith("The features stream broke off")) tell("");
      return;
    }
    completions.take(name, data, id);
  }

  stream = listen({ onevent, onstate }, {});
  startShell((ready) => {
    controls.defaults(ready.ranking);
    conversation.ready(`Ask ${ready.model}`);
    if (ready.degraded.length) tell(`Degraded: ${ready.degraded.join(" ")}`);
  }).catch((error) => tell(error.message));
}

function createSave(tell) {
  const button = h("button", { type: "button", hidden: true, title: "Keep this answer with all its features, to be replayed and shared" }, "Save");
  const link = h("a", { hidden: true }, "saved");
  let current = null;
  let turn = null;
  let exists = null;

  button.addEventListener("click", async () => {
    const saving = current;
    button.disabled = true;
    try {
      const title = (turn?.question ?? saving.tokens.slice(0, 20).map((token) => token.token).join("")).trim().replace(/\s+/g, " ").slice(0, 80);
      const { url } = await postJson("/v1/sessions", { completion_id: saving.id, ...(title && { title }), ...(turn && { messages: turn.messages }) });
      saving.saved = url;
    } catch (error) {
      tell(`Not saved: ${error.message}`);
    }
    button.disabled = false;
    if (saving === current) render();
  });

  function render() {
    button.hidden = !exists || !current?.id || current.state !== "ended" || current.tokens.length === 0 || Boolean(current.saved);
    link.hidden = !current?.saved;
    if (current?.saved) link.href = current.saved;
    link.textContent = "open the recording";
  }

  return {
    element: h("span", { class: "save" }, button, link),
    async of(completion, ofTurn) {
      [current, turn] = [completion, ofTurn];
      // A server that keeps no recordings has no such path; asking the path itself would be an error in the console.
      exists ??= getJson("/openapi.json").then((document) => "/v1/sessions" in document.paths, () => null);
      exists = await exists;
      render();
    },
  };
}

function lower(text) {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

startPage();
