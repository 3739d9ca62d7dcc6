"use strict";

/* What is shown around the chat, the models of the server, and the controls. */

/* Chunks come faster than frames; a hidden page draws at the end. */

let frame = 0;

const draw = () => (frame ||= requestAnimationFrame(() => drawNow()));

function drawNow({ toEnd = false } = {}) {
  cancelAnimationFrame(frame);
  frame = 0;
  atEnd(() => {
    exchanges.at(-1)?.draw();
    showContext();
  }, toEnd);
}

/* Makes a change of the chat; whoever was at its end, or is to be there, is at its new end then. */
function atEnd(change, toEnd = false) {
  const scroller = document.querySelector("main");
  const follows = toEnd || scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
  change();
  if (follows) scroller.scrollTop = scroller.scrollHeight;
}

function showRunning() {
  const writing = running !== null;
  const moves = document.activeElement === $(writing ? "send" : "stop");
  $("send").hidden = writing;
  $("stop").hidden = !writing;
  if (moves) $(writing ? "stop" : "message").focus();
}

/* The bar of the context: tokens of the last prompt that were cached or read, and of its reply. */
function showContext() {
  const last = exchanges.findLast((one) => one.prompt.total);
  const { cache = 0, processed = 0 } = last?.prompt ?? {};
  const generated = last?.counts.tokens ?? 0;
  const counts = { cached: cache, prefilled: Math.max(0, processed - cache), generated };
  const words = { cached: "cached", prefilled: "read", generated: "written" };
  for (const [name, count] of Object.entries(counts)) {
    const part = document.querySelector(`#context-bar .${name}`);
    part.style.width = count && model.context ? `max(2px, ${(100 * count) / model.context}%)` : "0";
  }
  const used = processed + generated;
  const sum = `${number.format(used)} of ${counted(model.context, "token")} of context`;
  const items = Object.entries(counts).map(([name, count]) =>
    element("span", {}, element("i", { className: name }), `${number.format(count)} ${words[name]}`),
  );
  $("context-words").replaceChildren(...(model.context ? [element("span", {}, sum)] : []), ...(used ? items : []));
}

function showSources(on) {
  if (on === document.body.classList.contains("drafts")) return;
  document.body.classList.toggle("drafts", on);
  for (const exchange of exchanges) exchange.showAnew();
  $("sources").ariaPressed = on;
  $("legend").hidden = !on;
}

/* Says what happened, and how to undo it; it stays until it is closed or the next thing happens. */
function showNotice(words, undo = null) {
  const wasThere = $("notice").contains(document.activeElement);
  $("notice-words").textContent = words;
  $("notice").hidden = !words;
  $("undo").hidden = !undo;
  $("undo").onclick = async () => {
    showNotice("");
    await undo();
    $("message").focus();
  };
  if (wasThere || document.activeElement === document.body) (undo ? $("undo") : $("message")).focus();
}

const tell = (words) => ($("status").textContent = words);

/* The models of the server. */

async function loadModels() {
  try {
    const { models } = await (await request("/v1/models")).json();
    if (!models.length) throw new Problem("The server has no model.");
    const [choice, only] = [$("model-choice"), models.length === 1];
    choice.replaceChildren(...models.map(({ slug, display_name: name }) => element("option", { value: slug, textContent: harmless(slug), title: harmless(name) })));
    // Before the choice is shown, so that nothing overrides what a user chooses.
    const last = await store.setting("model").catch(() => null);
    choice.hidden = only;
    const first = models.find(({ slug }) => slug === last) ?? models[0];
    choice.value = first.slug;
    await chooseModel(first.slug, first.display_name);
  } catch (error) {
    showModelProblem(error, loadModels);
  }
}

/* Shows a model, and asks the server about it. An answer or a failure that comes after the user has
   chosen another model says nothing any more. */
async function chooseModel(id, name) {
  const chosen = { id, name, context: model.id === id ? model.context : 0, loaded: false };
  model = chosen;
  try {
    const props = await (await request(`/props?model=${encodeURIComponent(id)}`)).json();
    if (model === chosen) showModel(props);
  } catch (error) {
    if (model === chosen) showModelProblem(error, () => chooseModel(id, name));
  }
}

function showModel(props) {
  const { n_ctx: context } = props.default_generation_settings;
  model.context = context;
  model.trained = props.n_ctx_train ?? context;
  model.loaded = props.thinking !== null;
  const [id, name] = [harmless(model.id), harmless(model.name)];
  Object.assign($("model-name"), { textContent: id, title: name, hidden: !$("model-choice").hidden });
  $("model-choice").title = name;
  if (!chat.title) document.title = `${id} · akunu`;
  showThinking(props.thinking ?? []);
  showOptions(props.options);
  showLoaded();
  showWelcome(props.stored);
  showContext();
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

function showWelcome({ parameters, quantization, num_bytes: bytes }) {
  const size = bytes < 1e9 ? `${number.format(Math.round(bytes / 1e6))} MB` : `${decimal.format(bytes / 1e9)} GB`;
  const facts = [parameters && `${compact.format(parameters)} parameters`, harmless(quantization), bytes && size, `context ${number.format(model.context)}`];
  $("welcome-name").textContent = harmless(model.name);
  $("welcome-size").textContent = facts.filter(Boolean).join(" · ");
}

/* Marks the models that are in memory. */
async function showLoaded() {
  const loaded = $("model-choice").hidden ? null : (await health())?.loaded;
  if (!loaded) return;
  for (const option of $("model-choice").options) {
    option.textContent = `${harmless(option.value)}${loaded.includes(option.value) ? " · loaded" : ""}`;
  }
}

function showModelProblem(error, retryIt) {
  const again = element("button", { type: "button", textContent: "Retry" });
  again.onclick = retryIt;
  $("model-name").hidden = false;
  $("model-name").replaceChildren(`${error.message} `, again);
}

/* Controls. */

$("stop").addEventListener("click", () => running?.abort.abort());

/* The list of chats, or the settings: beside the chat where there is room, else over it. */
class Panel {
  constructor(id, narrow) {
    this.id = id;
    this.narrow = matchMedia(`(max-width: ${narrow})`);
    this.narrow.onchange = Panel.place;
    $(`${id}-toggle`).onclick = () => this.show($(id).hidden);
    $(`close-${id}`).onclick = () => this.show(false);
  }

  covers() {
    return !$(this.id).hidden && this.narrow.matches;
  }

  show(open, { focus = true } = {}) {
    $(this.id).hidden = !open;
    $(`${this.id}-toggle`).ariaExpanded = open;
    Panel.place();
    if (focus) $(open ? `close-${this.id}` : `${this.id}-toggle`).focus();
  }

  /* The panel over the others, if there is one. */
  static get cover() {
    return Object.values(panels).find((one) => one.covers());
  }

  /* What is covered cannot be reached. */
  static place() {
    const cover = Panel.cover?.id;
    for (const id of ["page", "chats", "settings"]) $(id).inert = Boolean(cover) && id !== cover;
  }
}

const panels = { chats: new Panel("chats", "65rem"), settings: new Panel("settings", "56rem") };

function keyPressed(event) {
  if (event.isComposing || document.querySelector("dialog[open]")) return;
  const command = event.ctrlKey || event.metaKey;
  if (command && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    newChat();
  } else if (command && event.key === "/") {
    event.preventDefault();
    $("keys").showModal();
  } else if (event.key === "Escape") {
    if (Panel.cover) Panel.cover.show(false);
    else if (running) running.abort.abort();
    else if ($("settings").contains(event.target)) panels.settings.show(false);
  }
}

document.addEventListener("keydown", keyPressed);
document.addEventListener("pointerdown", ({ target }) => {
  if (Panel.cover && !$(Panel.cover.id).contains(target)) Panel.cover.show(false);
});
for (const button of document.querySelectorAll(".new-chat")) button.onclick = newChat;
for (const id of ["chats-toggle", "close-chats"]) {
  // On a narrow page the list is never open from the start.
  $(id).addEventListener("click", () => panels.chats.narrow.matches || store.set("lists", !$("chats").hidden).catch(() => {}));
}
$("show-keys").addEventListener("click", () => $("keys").showModal());
$("dismiss").addEventListener("click", () => {
  showNotice("");
  $("message").focus();
});
$("sources").addEventListener("click", () => {
  const on = !document.body.classList.contains("drafts");
  atEnd(() => showSources(on));
  store.set("sources", on).catch(() => {});
});
$("model-choice").addEventListener("change", ({ target }) => {
  store.set("model", target.value).catch(() => {});
  chooseModel(target.value, target.selectedOptions[0].title);
});
addEventListener("popstate", async () => {
  const id = location.hash.slice(1);
  if (id !== (turns.size ? chat.id : "") && !(id && (await openChat(id)))) newChat();
});

/* What an empty chat offers. The last one shows drafts: most of its reply is a copy. */
const EXAMPLES = {
  "Explain an idea": "Why is the sky blue? Explain it to a child of ten.",
  "Write code": "Write a Python function that merges two sorted lists, with a test.",
  "Make a table": "Compare the inner planets in a table: size, day, year, moons.",
  "Correct a text": "Correct the spelling, and change nothing else: We are going too the libary tomorow, becouse it is closed on sundays.",
};

function exampleOf([name, words]) {
  const button = element("button", { type: "button" }, element("strong", { textContent: name }), element("span", { textContent: words }));
  button.onclick = () => send(words, []) && showAddress();
  return element("li", {}, button);
}

/* The worker keeps the page, where the browser allows one: on pages of this machine and encrypted ones. */
function startWorker() {
  const policy = window.trustedTypes?.createPolicy("worker", { createScriptURL: () => "/worker.js" });
  navigator.serviceWorker?.register(policy?.createScriptURL("") ?? "/worker.js").catch(() => {});
}

/* The start. The page is there before the browser has found what it keeps. */

async function begin() {
  $("legend").replaceChildren(...allSources());
  $("examples").append(...Object.entries(EXAMPLES).map(exampleOf));
  panels.chats.show(!panels.chats.narrow.matches, { focus: false });
  // The attribute autofocus would complain in the console where somebody was faster.
  if (document.activeElement === document.body) $("message").focus();
  restore();
  startWorker();
  loadModels();
  // Now, since a question gives the page the address of its chat.
  const id = location.hash.slice(1);
  await unlessRefused(async () => {
    store.keeps = (await store.setting("keeps")) ?? true;
    if (await store.setting("sources")) showSources(true);
    // Whoever was faster is in a chat of their own, whose reply is not kept yet.
    if (id && !turns.size && !(await openChat(id))) showAddress();
    if ((await store.setting("lists")) === false) panels.chats.show(false, { focus: false });
  });
  await showChats();
}

begin();
