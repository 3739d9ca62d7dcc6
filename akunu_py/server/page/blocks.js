"use strict";

/* Text of a model as nodes. The server reads its Markdown and answers with trees: a text, or
   [name, attributes, ...trees]. Nodes are made by name from a list and filled with text nodes, so
   that no text becomes markup. Images stay as they are written: nothing is fetched. */

const showsSources = () => document.body.classList.contains("drafts");

/* Text that grows, and who drafted which part of it: null for the model itself. */
class SourcedText {
  constructor(text = "", runs = null) {
    this.text = harmless(text);
    this.runs = runs ?? (this.text ? [{ source: null, end: this.text.length }] : []);
  }

  add(text, source) {
    this.text += harmless(text);
    const last = this.runs.at(-1);
    if (last?.source === source) last.end = this.text.length;
    else this.runs.push({ source, end: this.text.length });
  }

  /* Number of characters by source. */
  sizes() {
    const sizes = new Map();
    let begin = 0;
    for (const { source, end } of this.runs) {
      sizes.set(source, (sizes.get(source) ?? 0) + end - begin);
      begin = end;
    }
    return sizes;
  }

  /* Returns the trees of the text between two places: what was drafted is in spans, if sources show. */
  between(start, end) {
    if (!showsSources()) return start < end ? [this.text.slice(start, end)] : [];
    let [low, high] = [0, this.runs.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.runs[middle].end > start) high = middle;
      else low = middle + 1;
    }
    const found = [];
    while (start < end) {
      const { source, end: until = end } = this.runs[low++] ?? { source: null };
      const text = this.text.slice(start, Math.min(until, end));
      found.push(source === null ? text : tintedTree(text, source));
      start += text.length;
    }
    return found;
  }
}

/* Finds the letters of trees in the text that they were made of, and tints them. What a mark or an
   escape put between them is skipped. What was tinted before, from the same place on, is taken. */
class Tinter {
  /* The text is from a place to another one; `cut` counts what was looked for up to its end. */
  constructor(sourced, place, end) {
    Object.assign(this, { sourced, place, end, cut: 0 });
  }

  /* Returns a tree with its tinted ones: `before` is what this returned for the tree in its place. */
  tint(tree, before) {
    const { place, cut } = this;
    if (!showsSources()) return { tree, place, tinted: [tree] };
    if (before?.place === place && before.whole && same(before.tree, tree)) {
      this.place = before.end;
      return before;
    }
    const found = { tree, place, inner: [] };
    if (typeof tree === "string") found.tinted = this.ofText(tree);
    else {
      const [name, attributes, ...trees] = tree;
      const isText = name !== "math" && name !== "button" && attributes.class !== "host";
      if (name === "math") this.find(attributes.alttext);
      if (isText) found.inner = trees.map((one, at) => this.tint(one, before?.inner[at]));
      found.tinted = [isText ? [name, attributes, ...found.inner.flatMap(({ tinted }) => tinted)] : tree];
    }
    return Object.assign(found, { end: this.place, whole: this.cut === cut });
  }

  ofText(text) {
    const start = this.find(text);
    if (start === null) {
      // A text with escapes is in pieces.
      const words = text.split(/(?<=\s)/);
      const parts = words.length > 1 ? words : [...text];
      return parts.length > 1 ? parts.flatMap((part) => this.ofText(part)) : [text];
    }
    // Whoever drafted the indentation: blocks of tinted blanks would hide the code's shape.
    const blanks = text.length - text.trimStart().length;
    return [...(blanks ? [text.slice(0, blanks)] : []), ...this.sourced.between(start + blanks, start + text.length)];
  }

  /* Returns where a text is, near this place, and goes on behind it; null if it is not there. */
  find(text) {
    const until = this.place + LONGEST_MARKS + text.length;
    if (until > this.end) this.cut += 1;
    const at = this.sourced.text.slice(this.place, Math.min(until, this.end)).indexOf(text);
    if (at < 0) return null;
    this.place += at + text.length;
    return this.place - text.length;
  }
}

const LONGEST_MARKS = 200;
const MATHML = "http://www.w3.org/1998/Math/MathML";
const NAMES = /^(p|h[1-6]|[uo]l|li|blockquote|hr|br|em|strong|s|sup|code|pre|span|div|button|a|table|thead|tbody|t[rhd]|math|m[a-z]+)$/;
const ATTRIBUTES = new Set(
  ("class dir start tabindex type aria-label title target rel data-tint alttext display displaystyle scriptlevel mathvariant " +
    "stretchy fence form separator lspace rspace minsize maxsize largeop movablelimits accent accentunder linethickness " +
    "columnalign rowspacing columnspacing columnlines rowlines notation width height depth voffset").split(" "),
);
const ADDRESS = /^(https?|mailto):/i;

/* Returns the node of a tree. */
function build(tree, space = null) {
  if (typeof tree === "string") return document.createTextNode(tree);
  const [name, attributes, ...inner] = tree;
  if (!NAMES.test(name)) return document.createTextNode("");
  const within = name === "math" ? MATHML : space;
  const node = within ? document.createElementNS(within, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "href" ? ADDRESS.test(value) : ATTRIBUTES.has(key)) node.setAttribute(key, value);
  }
  node.append(...inner.map((one) => build(one, within)));
  return node;
}

/* Makes what a node has, from one of its children on, the nodes of trees. Those that are there already
   stay: `before` are their trees. Yields after each node that it made or removed. */
function* patch(parent, before, after, from = 0, space = null) {
  let node = parent.childNodes[from] ?? null;
  for (const [at, tree] of after.entries()) {
    const old = before[at];
    const next = old === undefined ? node : node.nextSibling;
    if (!same(old, tree)) {
      const isElement = Array.isArray(tree);
      const stays = isElement && Array.isArray(old) && same(old.slice(0, 2), tree.slice(0, 2));
      if (!stays) {
        const made = build(isElement ? tree.slice(0, 2) : tree, space);
        if (old === undefined) parent.insertBefore(made, node);
        else node.replaceWith(made);
        node = made;
        yield;
      }
      if (isElement) yield* patch(node, stays ? old.slice(2) : [], tree.slice(2), 0, tree[0] === "math" ? MATHML : space);
    }
    node = next;
  }
  for (let left = before.length - after.length; left > 0; left -= 1) yield parent.lastChild.remove();
}

const sizeOf = (tree) => (typeof tree === "string" ? 1 : tree.slice(2).reduce((sum, one) => sum + sizeOf(one), 1));

/* Nodes that a browser makes and lays out in some ten milliseconds. It answers its user after each
   piece, whichever views they are in. */
const PIECE = 500;
let made = 0;
let answering = null;

async function answer() {
  while (made >= PIECE) {
    answering ??= new Promise((done) => setTimeout(() => done((made = 0, answering = null))));
    await answering;
  }
}

function same(one, other) {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object") return false;
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => same(one[key], other[key]));
}

/* Texts that are wanted at once are one request. */
const wanted = [];

function render(text) {
  if (!wanted.length) setTimeout(renderWanted);
  return new Promise((done) => wanted.push({ text, done }));
}

async function renderWanted() {
  const some = wanted.splice(0);
  let answer = { texts: [], seconds: 0 };
  try {
    answer = await (await post("/render", { texts: some.map(({ text }) => text) })).json();
  } catch {
    // The texts stay as they are written.
  }
  for (const [at, { done }] of some.entries()) done({ blocks: answer.texts?.[at] ?? null, seconds: answer.seconds });
}

/* Share of the time that the server may spend on a reply's Markdown, and least time between. */
const RENDERING_SHARE = 0.03;
const LEAST_MS = 100;

/* Shows a text that grows: blocks that are complete stay, and the last one is read again; `finished`
   is told the nodes that stay, with their places in the text. What was not read yet is shown as it is. */
class MarkdownView {
  constructor(parent, sourced, finished = () => {}) {
    Object.assign(this, { parent, sourced, finished });
    /* The open block: where it begins, the first of its nodes, and what was tinted of it. */
    this.from = this.first = 0;
    this.open = [];
    /* The blocks before it. */
    this.closed = [];
    this.read = 0;
    this.next = 0;
    this.busy = this.ended = this.patching = false;
    /* Whether its tints are those of before. */
    this.stale = false;
    this.tail = null;
    parent.view = this;
  }

  update() {
    this.showTail();
    if (!this.busy && this.read < this.sourced.text.length && performance.now() >= this.next) this.readOn();
  }

  /* Nothing more comes. */
  end() {
    this.ended = true;
    this.showTail();
    if (!this.busy) this.readOn();
  }

  async readOn() {
    const last = this.ended;
    // Notes at the foot may be of any block.
    const from = last && this.sourced.text.includes("[^") ? 0 : this.from;
    const until = this.sourced.text.length;
    this.busy = true;
    const { blocks, seconds } = await render(this.sourced.text.slice(from, until));
    // To take a long answer is a piece of work, too.
    made += (until - from) / 100;
    // What a server cannot read stays as it is written.
    this.next = blocks ? performance.now() + Math.max(LEAST_MS, (1000 * seconds) / RENDERING_SHARE) : Infinity;
    if (blocks && this.parent.view === this) await this.show(blocks, from, until);
    this.busy = false;
    if (this.parent.view !== this) return;
    if (last) this.complete(this.open.length);
    else if (this.ended) this.readOn();
    if (this.stale) this.tintAnew();
  }

  /* Shows the whole text with other tints. */
  async tintAnew() {
    this.stale = this.busy;
    if (this.busy) return;
    const { ended } = this;
    this.busy = true;
    const all = [...this.closed, ...this.open];
    const found = await this.tint(all, this.read);
    await this.patch(all, found, 0);
    this.closed = found.splice(0, this.closed.length);
    this.open = found;
    this.busy = false;
    if (this.stale) this.tintAnew();
    else if (this.ended && !ended) this.readOn();
  }

  /* Returns blocks with the tints of now; those of `before` that are the same are taken. */
  async tint(blocks, end, before = []) {
    const found = [];
    for (const [at, { tree, place }] of blocks.entries()) {
      await answer();
      found.push(new Tinter(this.sourced, place, blocks[at + 1]?.place ?? end).tint(tree, before[at]));
      // It takes less than to make the nodes.
      if (found[at] !== before[at]) made += sizeOf(tree) / 4;
    }
    return found;
  }

  /* Makes nodes of blocks those of others. Meanwhile the text keeps its height, and no tail is shown. */
  async patch(before, after, first) {
    const trees = (some) => some.flatMap(({ tinted }) => tinted);
    const work = patch(this.parent, trees(before), trees(after), first);
    const piece = () => {
      for (;;) {
        const { done } = work.next();
        if (done || (made += 1) >= PIECE) return done;
      }
    };
    await answer();
    this.patching = true;
    if (this.tail?.textContent.length > LONG_TAIL) this.parent.style.minHeight = `${this.parent.offsetHeight}px`;
    this.tail?.remove();
    this.tail = null;
    for (let done = false; !done && this.parent.view === this; await answer()) atEnd(() => (done = piece()));
    this.parent.style.minHeight = "";
    this.patching = false;
    this.showTail();
  }

  async show(blocks, from, until) {
    if (from < this.from) {
      this.parent.replaceChildren();
      this.tail = null;
      [this.from, this.first, this.open, this.closed] = [0, 0, [], []];
    }
    const places = [from];
    for (const line of this.sourced.text.slice(from, until).split("\n")) places.push(places.at(-1) + line.length + 1);
    const found = await this.tint(blocks.map(([line, tree]) => ({ tree, place: places[line] })), until, this.open);
    this.read = until;
    await this.patch(this.open, found, this.first);
    // A line that may still grow can yet turn out to belong to the block before it.
    const begin = (blocks.at(-1)?.[0] === places.length - 2 ? blocks.at(-2) : blocks.at(-1))?.[0] ?? 0;
    const complete = blocks.filter(([start]) => start < begin).length;
    this.open = found;
    this.complete(complete);
    this.from = this.open[0]?.place ?? from;
  }

  /* Takes leave of the first open blocks. */
  complete(count) {
    const gone = this.open.splice(0, count);
    this.closed.push(...gone);
    for (const { tinted, place } of gone) {
      for (const end = this.first + tinted.length; this.first < end; this.first += 1) this.finished(this.parent.childNodes[this.first], place);
    }
  }

  /* Shows what was not read yet behind the last letter. */
  showTail() {
    const { text } = this.sourced;
    if (this.patching || this.read === text.length) return;
    if (!this.tail) {
      let place = this.parent;
      for (let node = place; node && !SEALED.includes(node.nodeName); node = node.lastElementChild) if (HOLDING.includes(node.nodeName)) place = node;
      if (place.nodeName === "CODE") place = place.lastElementChild ?? place;
      this.tail = element(place === this.parent ? "p" : "span");
      this.shown = this.read;
      place.append(this.tail);
    }
    const isLong = text.length - this.shown > LONG_TAIL;
    const trees = isLong ? [text.slice(this.shown)] : this.sourced.between(this.shown, text.length);
    this.tail.append(...trees.map((tree) => build(tree)));
    this.shown = text.length;
  }
}

/* Characters of a tail that is shown without tints. */
const LONG_TAIL = 4000;
const SEALED = ["math", "TABLE"];
const HOLDING = ["P", "LI", "H1", "H2", "H3", "H4", "H5", "H6", "CODE"];
