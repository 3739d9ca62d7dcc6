"use strict";

/* The chat. Nothing is stored: the conversation, the settings and the key live in these variables.
   The key is not in sessionStorage either, which would outlive the page in the browser's files of a
   session; asking again after a reload costs one paste. */

const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const decimal = new Intl.NumberFormat("en", { maximumFractionDigits: 1, minimumFractionDigits: 1 });

/* Seconds before a reply that has not begun asks how busy the server is, and between two questions. */
const QUEUE_S = 2;
/* Longest time for which a server's Retry-After is believed. */
const LONGEST_WAIT_S = 600;

let key = "";
let model = { id: "", context: 0, loaded: false };
let exchanges = [];
let running = null;

/* Sources of drafts, in words. Names are those of akunu's drafters; others are shown as they are. */

const SOURCES = {
  prompt: "this conversation",
  reply: "this reply",
  memory: "earlier replies",
  lookup: "the text so far",
  grammar: "the form asked for",
  ngram: "n-gram counts",
  "ngram-window": "n-gram counts",
  unigram: "n-gram counts",
  bigram: "n-gram counts",
  counts: "n-gram counts",
  corpus: "counts of a corpus",
  recycling: "the model's own candidates",
  candidate: "the model's own candidates",
  "draft-model": "the draft model",
  mtp: "the prediction head",
};
const TINTS = 6;
const tints = new Map([["prompt", 1], ["reply", 2], ["memory", 3]].map(([source, tint]) => [SOURCES[source], tint]));

const nameOf = (source) =>
  harmless([...new Set(source.split("+").map((name) => SOURCES[name] ?? name))].join(" and "));

function tinted(text, source) {
  const name = nameOf(source);
  // The first tints are those of `auto`; other sources share the rest.
  if (!tints.has(name)) tints.set(name, 4 + ((tints.size - 3) % (TINTS - 3)));
  const span = element("span", { textContent: text, title: `Drafted from ${name}` });
  span.dataset.tint = tints.get(name);
  return span;
}

/* Requests. A failure is a Problem, in words that say what to do. */

class Problem extends Error {
  constructor(words, retryAfter = 0) {
    super(words);
    this.retryAfter = retryAfter;
  }
}

async function request(path, options = {}) {
  for (;;) {
    const headers = { ...options.headers, ...(key && { authorization: `Bearer ${key}` }) };
    let response;
    try {
      response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem("The server does not answer. Look whether akunu serve still runs, then retry.");
    }
    if (response.ok) return response;
    if (response.status !== 401) throw await problemOf(response);
    await askForKey(key !== "");
  }
}

async function problemOf(response) {
  let error = {};
  try {
    ({ error } = await response.json());
  } catch {
    // Not the server's own words, such as those of a proxy.
  }
  const retryAfter = Number(response.headers.get("retry-after")) || 0;
  return new Problem(wordsOf(error ?? {}, response.status), retryAfter);
}

function wordsOf(error, status) {
  if (error.code === "context_length_exceeded") {
    const larger = model.context < model.trained ? `start the server with a larger --context (the model has ${number.format(model.trained)} tokens)` : "choose a model with a larger context";
    return `This chat no longer fits into the model's context. Begin a new chat, shorten the message or the system prompt, or ${larger}. (${error.message})`;
  }
  const said = error.message ? harmless(String(error.message)).slice(0, 1000) : `status ${status}`;
  const intro = { server_busy: "The server is busy", out_of_memory: "The server has no memory left for this" };
  return `${intro[error.code] ?? "The server could not answer"}: ${said}.`;
}

function askForKey(wrong) {
  const dialog = $("key-dialog");
  if (wrong) $("key-words").textContent = "The server does not know this key. Give one of the lines in its file of keys.";
  $("key").value = "";
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve, reject) => {
    $("key-form").onsubmit = (event) => {
      event.preventDefault();
      key = $("key").value.trim();
      dialog.close();
      resolve();
    };
    dialog.oncancel = () => reject(new Problem("This server answers only with a key. Retry to give one."));
  });
}

/* Yields the values of a response's server-sent events; a stream without its end is a Problem. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (line === "data: [DONE]") return;
        if (line.startsWith("data: ")) yield JSON.parse(line.slice(6));
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  throw new Problem("The connection ended before the reply was complete. Look whether akunu serve still runs, then retry.");
}

/* One message of the user and its reply. */

class Exchange {
  content = "";
  thinking = "";
  counts = { tokens: 0, passes: 0 };
  prompt = { total: 0, cache: 0, processed: 0 };
  finish = null;
  problem = null;
  pace = null;

  constructor(question) {
    this.question = question;
    this.answer = new SourcedText();
    this.thoughts = new SourcedText();
    this.abort = new AbortController();
    this.parts = {
      reading: element("p", { className: "reading", textContent: "Sent." }),
      thoughts: element("div"),
      summary: element("summary"),
      answer: element("div", { className: "answer" }),
      below: element("div", { className: "below" }),
    };
    const { reading, thoughts, summary, answer, below } = this.parts;
    this.fold = element("details", { className: "thoughts", hidden: true }, summary, thoughts);
    this.view = new MarkdownView(answer, this.answer);
    this.node = element("article", { className: "turn reply" }, reading, this.fold, answer, below);
    this.node.setAttribute("aria-label", "Reply");
    this.shown = element("article", { className: "turn user", dir: "auto", textContent: harmless(question) });
    this.shown.setAttribute("aria-label", "You");
  }

  /* Messages that a later request has of this exchange; none where there was no reply. */
  get messages() {
    if (!this.content) return [];
    const reply = { role: "assistant", content: this.content };
    if (this.thinking) reply.reasoning_content = this.thinking;
    return [{ role: "user", content: this.question }, reply];
  }

  async run(body) {
    this.node.setAttribute("aria-busy", "true");
    const queue = setInterval(() => this.tellQueue(), QUEUE_S * 1000);
    try {
      const response = await request("/v1/chat/completions", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
        signal: this.abort.signal,
      });
      for await (const chunk of eventsOf(response)) this.take(chunk);
    } catch (error) {
      if (error.name === "AbortError") this.finish = "stopped";
      else this.problem = error instanceof Problem ? error : new Problem(`This page failed: ${error.message}`);
    } finally {
      clearInterval(queue);
      this.ended = true;
      this.retryAt = performance.now() + 1000 * Math.min(this.problem?.retryAfter ?? 0, LONGEST_WAIT_S);
      this.node.setAttribute("aria-busy", "false");
    }
  }

  take(chunk) {
    if (chunk.error) throw new Problem(wordsOf(chunk.error, "unknown"));
    const choice = chunk.choices[0];
    if (choice?.finish_reason) this.finish = choice.finish_reason;
    if (chunk.prompt_progress) this.prompt = chunk.prompt_progress;
    if (chunk.akunu) this.counts = chunk.akunu;
    if (chunk.usage) {
      const { prompt_tokens: total, prompt_tokens_details: details } = chunk.usage;
      this.prompt = { total, cache: details.cached_tokens, processed: total };
      this.counts = { ...this.counts, tokens: chunk.usage.completion_tokens };
    }
    if (chunk.timings) this.pace = chunk.timings.predicted_per_second;
    const source = chunk.akunu?.source ?? null;
    const { content, reasoning_content: thinking } = choice?.delta ?? {};
    if (thinking) {
      this.thinking += thinking;
      this.thoughts.add(thinking, source);
    }
    if (content) {
      this.content += content;
      this.answer.add(content, source);
    }
    draw();
  }

  async tellQueue() {
    if (this.prompt.total) return;
    try {
      const state = await (await fetch("/health")).json();
      if (this.prompt.total || this.ended) return;
      const busy = `${counted(state.running, "reply")} under way, ${counted(state.waiting, "request")} waiting`;
      this.parts.reading.textContent = `The server is busy: ${busy}.`;
    } catch {
      // The request itself will tell.
    }
  }

  draw() {
    const { reading, thoughts, summary, below } = this.parts;
    const { total, cache, processed } = this.prompt;
    const begun = this.answer.text || this.thoughts.text;
    if (total && !begun) {
      const reused = cache ? `, ${number.format(cache)} of them from the cache` : "";
      reading.textContent =
        processed < total
          ? `Reading the prompt: ${number.format(processed)} of ${counted(total, "token")}${reused}.`
          : `Read ${counted(total, "token")}${reused}.`;
    }
    reading.hidden = Boolean(begun) || this.ended;
    this.fold.hidden = !this.thoughts.text;
    if (this.thoughts.text.length !== this.drawnThoughts) {
      this.drawnThoughts = this.thoughts.text.length;
      thoughts.replaceChildren();
      this.thoughts.appendTo(thoughts, 0, this.thoughts.text.length);
    }
    const over = this.answer.text || this.ended;
    summary.textContent = over ? "Thoughts" : "Thinking…";
    // Thoughts are open while they come and fold when the answer begins, unless the reader chose.
    if (this.thoughts.text && this.open === undefined) this.fold.open = this.open = true;
    if (over && this.open && this.fold.open) this.fold.open = this.open = false;
    this.view.update();
    below.replaceChildren(...this.footnotes());
  }

  footnotes() {
    const notes = [];
    const { tokens, passes } = this.counts;
    if (tokens && passes) {
      const rate = `${decimal.format(tokens / passes)} a pass`;
      const speed = this.pace ? `, ${decimal.format(this.pace)} a second` : "";
      notes.push(element("span", { className: "figures", textContent: `${counted(tokens, "token")} in ${counted(passes, "pass")}: ${rate}${speed}` }));
    }
    const ends = { stopped: "Stopped.", length: "Ended at the token limit." };
    if (this.ended && ends[this.finish]) notes.push(element("span", { textContent: ends[this.finish] }));
    if (this.ended) {
      if (this.content) {
        const copy = element("button", { type: "button", textContent: "Copy" });
        copy.setAttribute("aria-label", "Copy this reply");
        copy.onclick = () => copyText(copy, this.content);
        notes.push(copy);
      }
      if (this === exchanges.at(-1)) notes.push(this.retryButton());
      notes.push(...this.legend());
    }
    if (this.problem) {
      this.alert ??= element("p", { className: "problem", role: "alert", textContent: this.problem.message });
      if (!this.alert.isConnected) this.parts.below.before(this.alert);
    }
    return notes;
  }

  /* The share of each source in the text, thoughts included; sources of one name are one. */
  legend() {
    const sizes = new Map();
    for (const [source, size] of [...this.answer.sizes(), ...this.thoughts.sizes()]) {
      const name = source === null ? null : nameOf(source);
      sizes.set(name, (sizes.get(name) ?? 0) + size);
    }
    const all = [...sizes.values()].reduce((sum, size) => sum + size, 0);
    const share = (name) => ` ${Math.round((100 * (sizes.get(name) ?? 0)) / all)} %`;
    const drafted = [...sizes].filter(([name]) => name !== null).sort(([, a], [, b]) => b - a);
    if (!drafted.length) return [];
    const entries = drafted.map(([name]) => element("span", {}, tinted(name, name), share(name)));
    const own = element("span", { textContent: `the model${share(null)}` });
    return [element("span", { className: "legend" }, "Text from:", ...entries, own)];
  }

  retryButton() {
    const button = element("button", { type: "button", textContent: "Retry" });
    button.setAttribute("aria-label", "Retry this reply");
    button.onclick = () => retry();
    countDown(button, this.retryAt);
    return button;
  }
}

function countDown(button, until) {
  const left = Math.ceil((until - performance.now()) / 1000);
  button.disabled = left > 0;
  button.textContent = left > 0 ? `Retry in ${left} s` : "Retry";
  if (left > 0) setTimeout(() => countDown(button, until), 250);
}

function counted(count, noun) {
  const plural = noun.endsWith("s") ? `${noun}es` : noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;
  return `${number.format(count)} ${count === 1 ? noun : plural}`;
}

async function copyText(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    // Browsers give no clipboard to pages from another machine without encryption.
    button.textContent = "Not allowed here";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

/* The conversation. */

function send(question) {
  const given = settings();
  if (!given) return false;
  const exchange = new Exchange(question);
  const earlier = exchanges.flatMap((one) => one.messages);
  const before = exchanges.at(-1);
  exchanges.push(exchange);
  before?.draw();
  $("welcome").hidden = true;
  $("chat").append(exchange.shown, exchange.node);
  running = exchange;
  showRunning();
  drawNow({ toEnd: true });
  const system = $("system").value.trim();
  const messages = [...(system ? [{ role: "system", content: system }] : []), ...earlier, { role: "user", content: question }];
  const wishes = { stream: true, stream_options: { include_usage: true }, return_progress: true, akunu: { sources: true, metrics: true } };
  tell("Waiting for the reply.");
  exchange.run({ model: model.id, messages, ...given, ...wishes }).finally(() => {
    if (running === exchange) {
      running = null;
      showRunning();
      tell(exchange.problem ? "" : exchange.finish === "stopped" ? "Stopped." : `The reply is complete: ${counted(exchange.counts.tokens, "token")}.`);
    }
    if (exchanges.includes(exchange)) drawNow();
    // What a template heeds is known once its model was loaded.
    if (!model.loaded) chooseModel(model.id, model.name);
  });
  return true;
}

function retry() {
  if (running) return;
  const last = exchanges.pop();
  last.shown.remove();
  last.node.remove();
  if (!send(last.question)) {
    exchanges.push(last);
    $("chat").append(last.shown, last.node);
  }
  $("message").focus();
}

function newChat() {
  running?.abort.abort();
  running = null;
  exchanges = [];
  $("chat").replaceChildren();
  $("welcome").hidden = false;
  showRunning();
  showContext();
  tell("");
  $("message").focus();
}

/* Choices about thinking: the option that a model's template must have for them, and the fields of a
   request. A template with efforts thinks as much as it is told; without them it is on or off. */
const THINKING = {
  off: { words: "Off", heeded: ["thinking"], fields: { enable_thinking: false } },
  on: { words: "On", heeded: ["thinking"], without: "effort", fields: { enable_thinking: true } },
  low: { words: "Low effort", heeded: ["effort"], fields: { reasoning_effort: "low" } },
  medium: { words: "Medium effort", heeded: ["effort"], fields: { reasoning_effort: "medium" } },
  high: { words: "High effort", heeded: ["effort"], fields: { reasoning_effort: "high" } },
};

function showThinking(heeds) {
  const before = $("thinking").value;
  const offered = Object.entries(THINKING).filter(
    ([, { heeded, without }]) => heeded.every((option) => heeds.includes(option)) && !heeds.includes(without),
  );
  const options = offered.map(([value, { words: textContent }]) => element("option", { value, textContent }));
  $("thinking").replaceChildren(element("option", { value: "", textContent: "As the model does by default" }), ...options);
  $("thinking").value = offered.some(([value]) => value === before) ? before : "";
  $("thinking-field").hidden = !offered.length;
}

/* Returns the options of a request, or null where a field has something else in it. */
function settings() {
  const given = {};
  for (const [id, name] of [["temperature", "temperature"], ["max-tokens", "max_tokens"]]) {
    if (!$(id).checkValidity()) {
      showSettings(true);
      $(id).reportValidity();
      return null;
    }
    if ($(id).value !== "") given[name] = Number($(id).value);
  }
  return { ...given, ...(THINKING[$("thinking").value]?.fields ?? {}) };
}

/* What is shown. Chunks come faster than frames; a hidden page draws at the end. */

let frame = 0;

function draw() {
  frame ||= requestAnimationFrame(() => drawNow());
}

function drawNow({ toEnd = false } = {}) {
  cancelAnimationFrame(frame);
  frame = 0;
  const scroller = document.querySelector("main");
  const follows = toEnd || scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
  exchanges.at(-1)?.draw();
  showContext();
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

function showSettings(open) {
  $("settings").hidden = !open;
  $("settings-toggle").setAttribute("aria-expanded", String(open));
}

function showDrafts() {
  document.body.classList.toggle("drafts", $("show-drafts").checked);
}

function tell(words) {
  $("status").textContent = words;
}

function fitMessage() {
  $("message").style.height = "auto";
  $("message").style.height = `${$("message").scrollHeight + 2}px`;
}

/* The models of the server. */

async function loadModels() {
  try {
    const { models } = await (await request("/v1/models")).json();
    if (!models.length) throw new Problem("The server has no model.");
    const [choice, only] = [$("model-choice"), models.length === 1];
    choice.replaceChildren(...models.map(({ slug, display_name: name }) => element("option", { value: slug, textContent: harmless(slug), title: harmless(name) })));
    choice.hidden = only;
    await chooseModel(models[0].slug, models[0].display_name);
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
  const { n_ctx: context, params } = props.default_generation_settings;
  model.context = context;
  model.trained = props.n_ctx_train ?? context;
  model.loaded = props.thinking !== null;
  const [id, name] = [harmless(model.id), harmless(model.name)];
  Object.assign($("model-name"), { textContent: id, title: name, hidden: !$("model-choice").hidden });
  $("model-choice").title = name;
  document.title = `${id} · akunu`;
  showThinking(props.thinking ?? []);
  $("temperature").placeholder = `Default: ${params.temperature}`;
  $("max-tokens").placeholder = params.n_predict < 0 ? "No limit" : `Default: ${params.n_predict}`;
  showContext();
}

function showModelProblem(error, retryIt) {
  const again = element("button", { type: "button", textContent: "Retry" });
  again.onclick = retryIt;
  $("model-name").hidden = false;
  $("model-name").replaceChildren(`${error.message} `, again);
}

/* Controls. */

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = $("message").value.trim();
  if (!question || running || !send(question)) return;
  $("message").value = "";
  fitMessage();
});

$("message").addEventListener("keydown", (event) => {
  // Enter also ends the choice of a character, which is not to send anything.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("composer").requestSubmit();
});

$("message").addEventListener("input", fitMessage);
$("stop").addEventListener("click", () => running?.abort.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.isComposing && !$("key-dialog").open) running?.abort.abort();
});
$("new-chat").addEventListener("click", newChat);
$("settings-toggle").addEventListener("click", () => showSettings($("settings").hidden));
$("show-drafts").addEventListener("change", showDrafts);
$("model-choice").addEventListener("change", ({ target }) => {
  chooseModel(target.value, target.selectedOptions[0].title);
});

$("welcome-legend").replaceChildren(...["prompt", "reply", "memory"].map((source) => tinted(SOURCES[source], source)));
showDrafts();
// The attribute autofocus would complain in the console where somebody was faster.
if (document.activeElement === document.body) $("message").focus();
loadModels();
