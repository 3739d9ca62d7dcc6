"use strict";

/* A question with its reply: what is kept of it, how the reply comes, and how both are shown. What a
   user does with it is in chat.js. */

/* Seconds before a reply that has not begun asks how busy the server is, and between two questions;
   and between two times that a reply under way is kept. */
const QUEUE_S = 2;
const KEEP_S = 2;
/* Longest time for which a server's Retry-After is believed. */
const LONGEST_WAIT_S = 600;

class Exchange {
  problem = null;
  ended = true;
  /* Where the text begins that screen readers are told. */
  heardFrom = Infinity;

  /* `given` is a question and its files, or a record. */
  constructor(given) {
    const fresh = { id: newId(), parent: null, files: [], begun: Date.now(), content: "", thinking: "" };
    const none = { counts: { tokens: 0, passes: 0 }, prompt: { total: 0, cache: 0, processed: 0 }, finish: null, pace: null, forgotten: 0, dropped: 0 };
    Object.assign(this, fresh, none, given);
    this.answer = new SourcedText(this.content, this.answerRuns);
    this.thoughts = new SourcedText(this.thinking, this.thoughtRuns);
    const [answer, below, said, actions] = ["answer", "below", "said", "below"].map((className) => element("div", { className }));
    const [reading, dropped] = ["Sent.", ""].map((textContent) => element("p", { className: "reading", textContent }));
    const [thoughts, summary] = [element("div"), element("summary")];
    this.parts = { reading, thoughts, summary, answer, below, said, actions, dropped };
    this.fold = element("details", { className: "thoughts", hidden: true }, summary, thoughts);
    this.node = element("article", { className: "turn reply", ariaLabel: "Reply" }, reading, this.fold, answer, below);
    const words = element("article", { className: "answer user", dir: "auto", ariaLabel: "You", hidden: !this.question });
    new MarkdownView(words, new SourcedText(this.question)).update();
    said.append(...(this.files.length ? [element("div", { className: "chips" }, ...this.files.map(shownFile))] : []), words);
    this.shown = element("div", { className: "turn asked" }, dropped, said, actions);
    this.showAnswer();
  }

  showAnswer() {
    this.parts.answer.replaceChildren();
    this.view = new MarkdownView(this.parts.answer, this.answer, (node, place) => place >= this.heardFrom && speak(node));
  }

  /* Shows the text with other tints. */
  showAnew() {
    this.parts.thoughts.replaceChildren();
    this.drawnThoughts = 0;
    this.draw();
    this.view.tintAnew();
  }

  get record() {
    const { id, parent, question, files, begun, content, thinking, counts, prompt, finish, pace, origin, forgotten, dropped } = this;
    const runs = { answerRuns: this.answer.runs, thoughtRuns: this.thoughts.runs };
    return { id, chat: chat.id, parent, question, files, begun, content, thinking, counts, prompt, finish, pace, origin, forgotten, dropped, ...runs };
  }

  /* What the model is asked, and what a later request has of this exchange: nothing where there was
     no reply. */
  get asked() {
    return { role: "user", content: withFiles(this.question, this.files) };
  }

  get messages() {
    if (!this.content) return [];
    const reply = { role: "assistant", content: this.content };
    if (this.thinking) reply.reasoning_content = this.thinking;
    return [this.asked, reply];
  }

  /* `messages` finds what is sent before the reply. */
  async run(options, messages, keep) {
    const [{ id: name, context }, { id }] = [model, this];
    this.origin = { model: name, date: new Date().toISOString(), settings: options };
    // A view that has ended cannot grow any more.
    this.showAnswer();
    this.view.update();
    this.heardFrom = this.answer.text.length;
    this.ended = false;
    this.finish = this.problem = null;
    this.alert?.remove();
    this.alert = null;
    this.abort = new AbortController();
    // Where the browser has locks: pages of this machine and encrypted ones.
    const { promise: over, resolve: release } = Promise.withResolvers();
    navigator.locks?.request(id, () => over);
    this.before = this.counts;
    this.prompt = { total: 0, cache: 0, processed: 0 };
    this.node.ariaBusy = true;
    const timers = [setInterval(() => this.tellQueue(), QUEUE_S * 1000), setInterval(() => this.content && keep(), KEEP_S * 1000)];
    try {
      const body = { model: name, messages: await messages(this.abort.signal), ...options };
      for await (const chunk of eventsOf(await post("/v1/chat/completions", body, this.abort.signal))) this.take(chunk);
    } catch (error) {
      if (error.name === "AbortError") this.finish = "stopped";
      else this.problem = error instanceof Problem ? error : new Problem(`This page failed: ${error.message}`);
    } finally {
      timers.forEach(clearInterval);
      release();
      const used = this.prompt.total + this.counts.tokens - this.before.tokens;
      if (this.finish === "length" && used >= context) this.finish = "context";
      // It also shows what came since the last frame.
      atEnd(() => this.view.end());
      this.ended = true;
      this.retryAt = performance.now() + 1000 * Math.min(this.problem?.retryAfter ?? 0, LONGEST_WAIT_S);
      this.node.ariaBusy = false;
    }
  }

  take(chunk) {
    if (chunk.error) throw new Problem(wordsOf(chunk.error, "unknown"));
    const choice = chunk.choices[0];
    if (choice?.finish_reason) this.finish = choice.akunu?.ended ?? choice.finish_reason;
    if (chunk.prompt_progress) this.prompt = chunk.prompt_progress;
    const { tokens, passes } = this.before;
    if (chunk.akunu) this.counts = { tokens: tokens + chunk.akunu.tokens, passes: passes + chunk.akunu.passes };
    if (chunk.usage) {
      const { prompt_tokens: total, prompt_tokens_details: details } = chunk.usage;
      this.prompt = { total, cache: details.cached_tokens, processed: total };
      this.counts = { ...this.counts, tokens: tokens + chunk.usage.completion_tokens };
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
    const state = this.prompt.total ? null : await health();
    if (!state || this.prompt.total || this.ended) return;
    const busy = `${counted(state.running, "reply")} under way, ${counted(state.waiting, "request")} waiting`;
    this.parts.reading.textContent = `The server is busy: ${busy}.`;
  }

  draw() {
    const { reading, thoughts, summary, below, actions, dropped } = this.parts;
    dropped.hidden = !this.dropped;
    const turns = this.dropped === 1 ? "turn is" : `${this.dropped} turns are`;
    if (this.dropped) dropped.textContent = `The context is full: the oldest ${turns} dropped. The model does not see them any more.`;
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
    thoughts.append(...this.thoughts.between(this.drawnThoughts ?? 0, this.thoughts.text.length).map((tree) => build(tree)));
    this.drawnThoughts = this.thoughts.text.length;
    const over = this.answer.text || this.ended;
    summary.textContent = over ? "Thoughts" : "Thinking…";
    // Thoughts are open while they come and fold when the answer begins, unless the reader chose.
    if (this.thoughts.text && this.open === undefined) this.fold.open = this.open = !over;
    if (over && this.open && this.fold.open) this.fold.open = this.open = false;
    this.view.update();
    refill(below, this.footnotes());
    if (this.ended || !actions.firstChild) refill(actions, this.ended ? questionActions(this) : []);
    if (this.problem && !this.alert) {
      this.alert = element("p", { className: "problem", role: "alert", textContent: this.problem.message });
      below.before(this.alert);
    }
  }

  /* Why the reply ended and what can be done about it; "" where there is nothing to say. */
  get end() {
    const next = this.parent === null ? `Ask for a shorter reply, or ${largerContext()}.` : "Continue drops the oldest turns, and so does the next message.";
    const ends = {
      stopped: "Stopped.",
      length: "Ended at the token limit: Continue goes on, and “Max tokens” in the settings sets the limit.",
      context: `Ended: the context is full. ${next}`,
      loop: "Ended: it repeated itself. “Stop loops” in the settings lets replies go on.",
    };
    return ends[this.finish] ?? "";
  }

  footnotes() {
    const { tokens } = this.counts;
    const parts = sharesOf([this.answer, this.thoughts]);
    const drafted = parts.reduce((sum, [name, share]) => sum + (name === null ? 0 : share), 0);
    const speed = this.pace ? `${decimal.format(this.pace)} tokens/s` : counted(tokens, "token");
    const line = `${speed}${drafted ? ` · ${Math.round(100 * drafted)} % drafted` : ""}`;
    if (!this.ended) return tokens ? [element("span", { className: "figures", textContent: line })] : [];
    const end = this.end ? [element("p", { className: "end", textContent: this.end })] : [];
    if (!tokens) return [...end, ...replyActions(this)];
    const rest = element("div", { className: "rest", hidden: !this.unfolded }, ...this.details(parts));
    const fold = element("button", { type: "button", className: "figures", title: "Figures of this reply" }, line, icon("down"));
    fold.ariaExpanded = !rest.hidden;
    fold.onclick = () => {
      this.unfolded = fold.ariaExpanded = rest.hidden;
      atEnd(() => (rest.hidden = !this.unfolded));
    };
    return [fold, ...end, ...replyActions(this), rest];
  }

  details(parts) {
    const { tokens, passes } = this.counts;
    const { total, cache } = this.prompt;
    const rate = passes ? ` in ${counted(passes, "pass")}, ${decimal.format(tokens / passes)} a pass` : "";
    const read = total ? [element("p", { textContent: `Prompt: ${counted(total, "token")}, ${number.format(cache)} of them from the cache` })] : [];
    const sources = parts.length > 1 ? [element("p", { className: "legend" }, ...sourceWords(parts))] : [];
    return [element("p", { textContent: `Reply: ${counted(tokens, "token")}${rate}` }), ...read, ...sources];
  }
}

/* A button with an icon for those who see it, and a name for those who hear it or point at it. */
const action = (shape, label, onclick) =>
  element("button", { type: "button", className: "icon", title: label, ariaLabel: label, onclick }, icon(shape));

/* Replaces what is in a node; whoever was at a button in it is at its successor then. */
function refill(parent, nodes) {
  const before = parent.contains(document.activeElement) ? document.activeElement : null;
  parent.replaceChildren(...nodes);
  if (!before) return;
  const same = [...parent.querySelectorAll("button")].find((button) => button.ariaLabel === before.ariaLabel && !button.disabled);
  (same ?? $("message")).focus();
}

function countDown(button, until) {
  const left = Math.ceil((until - performance.now()) / 1000);
  button.disabled = left > 0;
  button.replaceChildren(left > 0 ? `Retry in ${left} s` : icon("retry"));
  if (left > 0) setTimeout(() => countDown(button, until), 250);
}

async function copyText(button, text) {
  const before = [...button.childNodes];
  try {
    await navigator.clipboard.writeText(text);
    button.replaceChildren(...(before[0].nodeName === "svg" ? [icon("check")] : ["Copied"]));
    tell("Copied.");
  } catch {
    // Browsers give no clipboard to pages from another machine without encryption.
    button.textContent = "Not allowed here";
  }
  setTimeout(() => button.replaceChildren(...before), 1500);
}

$("chat").addEventListener("click", ({ target }) => {
  const code = target.closest(".code > div button") && target.closest(".code").querySelector("code");
  if (code) copyText(target, code.textContent);
});

/* Tells screen readers a block of a reply once it is complete, in its turn. */
function speak(node) {
  const words = node.className === "code" ? "A block of code." : node.textContent;
  $("spoken").append(element("p", { textContent: words }));
}
