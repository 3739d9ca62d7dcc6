"use strict";

/* The chat that is shown: a tree of exchanges, of which one branch is on the page. Another reply, and
   another question in its place, are branches beside the first ones. */

let chat = newChatRecord();
let turns = new Map();
/* Those of the branch that is shown. */
let exchanges = [];
let running = null;

const siblingsOf = ({ parent }) => [...turns.values()].filter((one) => one.parent === parent);

function branchTo(leaf) {
  const branch = [];
  for (let one = turns.get(leaf); one && !branch.includes(one); one = turns.get(one.parent)) branch.unshift(one);
  return branch;
}

/* The newest end of what follows an exchange. */
function endOf(exchange) {
  const next = [...turns.values()].filter(({ parent }) => parent === exchange.id).at(-1);
  return next ? endOf(next) : exchange;
}

function showBranch(leaf) {
  chat.leaf = leaf;
  exchanges = branchTo(leaf);
  $("chat").replaceChildren(...exchanges.flatMap(({ shown, node }) => [shown, node]));
  for (const exchange of exchanges) exchange.draw();
  $("welcome").hidden = exchanges.length > 0;
  document.title = `${harmless(chat.title) || harmless(model.id) || "akunu"}${chat.title || model.id ? " · akunu" : ""}`;
  showContext();
}

/* Does what the browser's storage may refuse: that is told, and the chat goes on. */
async function unlessRefused(work) {
  try {
    return await work();
  } catch (error) {
    showNotice(notKept(error));
  }
}

/* Keeps the chat and some of its turns. */
const keep = (changed, options) => unlessRefused(() => store.put([{ ...chat }], changed.map((one) => one.record), options));

const notKept = (error) =>
  error?.name === "QuotaExceededError"
    ? "The browser's storage is full, so this chat is not kept from here on. Delete chats, or export this one."
    : `The browser does not keep this chat (${error?.message ?? "no reason given"}). Export it, if you need it later.`;

/* Asks for the reply of an exchange, and adds it to the chat if it is new. */
function ask(exchange, given, { continues = false } = {}) {
  const isNew = !turns.has(exchange.id);
  turns.set(exchange.id, exchange);
  if (!chat.title) chat.title = titleOf(exchange.question, exchange.files);
  chat.system = $("system").value.trim();
  chat.changed = Date.now();
  running = exchange;
  if (isNew || exchanges.at(-1) !== exchange) showBranch(exchange.id);
  const wishes = { stream: true, stream_options: { include_usage: true }, return_progress: true, akunu: { sources: true, metrics: true } };
  const options = { ...PAGE_DEFAULTS, ...given, ...wishes, ...(continues && { continue_final_message: true, add_generation_prompt: false }) };
  const home = chat;
  const [earlier, said] = [exchanges.slice(0, -1), continues ? exchange.messages : [exchange.asked]];
  $("spoken").replaceChildren();
  tell("Waiting for the reply.");
  const messages = (signal) => fitting(exchange, earlier, said, given.max_tokens, signal);
  const reply = exchange.run(options, messages, () => chat === home && keep([exchange], { quietly: true }));
  showRunning();
  drawNow({ toEnd: true });
  keep([exchange]).then(() => isNew && showChats());
  reply.finally(() => {
    if (running === exchange) {
      running = null;
      showRunning();
      tell(exchange.problem ? "" : exchange.end || `The reply is complete: ${counted(exchange.counts.tokens, "token")}.`);
    }
    if (chat === home) {
      drawNow();
      for (const one of exchanges) if (one !== exchange) one.draw();
      keep([exchange]);
      if (!exchange.problem) sendNext();
    }
    // What a template heeds is known once its model was loaded.
    if (!model.loaded) chooseModel(model.id, model.name);
    else showLoaded();
  });
}

function systemMessage() {
  const content = $("system").value.trim();
  return content ? [{ role: "system", content }] : [];
}

/* Asks a new question after the last one, or in the place of another. */
function send(question, files, parent = exchanges.at(-1)?.id ?? null) {
  const given = settings();
  if (!given || running) return false;
  ask(new Exchange({ question, files, parent }), given);
  return true;
}

/* What can be done with a message. */

function questionActions(exchange) {
  const versions = new Map(siblingsOf(exchange).map((one) => [one.asked.content, one]));
  versions.set(exchange.asked.content, exchange);
  return [
    action("edit", "Edit this question", () => editMessage(exchange)),
    action("trash", "Delete this question and what follows", () => deleteMessage(exchange)),
    ...versionActions([...versions.values()], exchange, "question"),
  ];
}

/* Ways to other versions of a question, or to other replies to it. */
function versionActions(versions, exchange, noun) {
  if (versions.length < 2) return [];
  const place = versions.indexOf(exchange);
  const to = (shape, label, step) => {
    const button = action(shape, label, () => {
      if (running) return;
      showBranch(endOf(versions[place + step]).id);
      keep([]);
    });
    button.disabled = !versions[place + step];
    return button;
  };
  const words = element("span", { className: "figures", textContent: `${place + 1} of ${versions.length}` });
  return [element("span", { className: "branches" }, to("left", `Previous ${noun}`, -1), words, to("right", `Next ${noun}`, 1))];
}

function replyActions(exchange) {
  const retry = action("retry", "Retry this reply", () => askAgain(exchange));
  countDown(retry, exchange.retryAt ?? 0);
  const replies = siblingsOf(exchange).filter((one) => one.asked.content === exchange.asked.content);
  const always = [retry, ...versionActions(replies, exchange, "reply")];
  if (!exchange.content) return always;
  const copy = action("copy", "Copy this reply", () => copyText(copy, exchange.content));
  const goOn = action("play", "Continue this reply", () => askAgain(exchange, { continues: true }));
  const change = action("edit", "Edit this reply", () => editReply(exchange));
  return [copy, ...always, ...(exchange === exchanges.at(-1) ? [goOn] : []), change];
}

/* Whether another tab writes a reply, which this one would overwrite. */
async function isWrittenElsewhere({ id }) {
  const { held = [] } = (await navigator.locks?.query()) ?? {};
  const found = held.some(({ name }) => name === id);
  if (found) showNotice("Another tab is writing this reply. Wait for its end, or stop it there.");
  return found;
}

async function askAgain(exchange, { continues = false } = {}) {
  const { question, files, parent } = exchange;
  if (running || (await isWrittenElsewhere(exchange))) return;
  const given = settings();
  if (!given || running) return;
  $("message").focus();
  // What has no reply is no branch to come back to.
  const stays = continues || (!exchange.content && exchange === exchanges.at(-1));
  ask(stays ? exchange : new Exchange({ question, files, parent }), given, { continues });
}

/* Puts a field in the place of a message; `save` takes the text and says whether it did. */
function edit(place, text, label, words, save) {
  if (running || document.querySelector("form.edit")) return;
  const field = element("textarea", { value: text, rows: Math.min(16, text.split("\n").length + 1), ariaLabel: label });
  const cancel = element("button", { type: "button", textContent: "Cancel" });
  const form = element("form", { className: "edit" }, field, element("div", {}, element("button", { textContent: words }), cancel));
  const end = () => {
    form.replaceWith(place);
    $("message").focus();
  };
  cancel.onclick = end;
  form.onsubmit = (event) => {
    event.preventDefault();
    if (running || (field.value.trim() && field.value !== text && !save(field.value))) return;
    end();
  };
  field.onkeydown = (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") end();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  };
  place.replaceWith(form);
  field.focus();
}

const editMessage = ({ parts, question, files, parent }) =>
  edit(parts.said, question, "The question, edited", "Send", (text) => send(text.trim(), files, parent));

/* The edited reply is a branch of its own, which the model did not write. */
const editReply = ({ parts, content, thinking, question, files, parent }) =>
  edit(parts.answer, content, "The reply, edited", "Save", (text) => {
    const edited = new Exchange({ question, files, parent, thinking, content: text });
    turns.set(edited.id, edited);
    showBranch(edited.id);
    keep([edited]);
    return true;
  });

async function deleteMessage(exchange) {
  if (running) return;
  const before = chat.leaf;
  const gone = new Set([exchange]);
  for (const one of turns.values()) if (gone.has(turns.get(one.parent))) gone.add(one);
  const order = [...turns.values()];
  for (const { id } of gone) turns.delete(id);
  const next = siblingsOf(exchange).at(-1);
  showBranch(next ? endOf(next).id : exchange.parent);
  const records = [...gone].map((one) => one.record);
  const home = chat;
  const undo = async () => {
    if (chat !== home) await openChat(home.id);
    for (const one of order) turns.set(one.id, one);
    showBranch(before);
    await keep([...gone]);
    showChats();
  };
  showNotice("Deleted.", undo);
  const isKept = await unlessRefused(() => store.remove(turns.size ? [] : [{ ...chat }], records));
  if (isKept && turns.size) await keep([]);
  showChats();
}

/* Another chat in the place of this one. A reply under way stops, with what it has. */

function leave() {
  running?.abort.abort();
  if (running) keep([running]);
  running = null;
  if (queue.length) withdraw(...queue);
  showRunning();
  tell("");
}

function newChat() {
  leave();
  chat = { ...newChatRecord(), system: $("system").value.trim() };
  turns = new Map();
  showBranch(null);
  showAddress();
  showChats();
  if (panels.chats.covers()) panels.chats.show(false);
  $("message").focus();
}

/* Shows a chat that is kept; returns whether there is one. */
async function openChat(id) {
  const [all, records] = (await unlessRefused(() => Promise.all([store.chats(), store.turns(id)]))) ?? [[]];
  const found = all.find((one) => one.id === id);
  if (!found) return false;
  leave();
  chat = found;
  turns = new Map(records.map((record) => [record.id, new Exchange(record)]));
  $("system").value = chat.system;
  showBranch(turns.has(chat.leaf) ? chat.leaf : ([...turns.keys()].at(-1) ?? null));
  showAddress();
  showChats();
  drawNow({ toEnd: true });
  return true;
}

/* The address names the chat, so that a reload and a second tab find it. The server never sees it. */
function showAddress() {
  const hash = turns.size ? `#${chat.id}` : "";
  if (location.hash !== hash) history.pushState(unsent(), "", hash || location.pathname);
}
