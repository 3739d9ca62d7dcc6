"use strict";

/* Text of a model as nodes. Nodes are made by name and filled with text nodes, so that no text
   becomes markup. Links and images stay as they are written: nothing is fetched, and an address can
   be read before it is followed. */

const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

/* Controls, and the characters that reorder text when it is shown (UAX #9), as in shown_text.py. */
const REPLACED = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f]/g;

const harmless = (text) => text.replace(/\r/g, "").replace(REPLACED, "\ufffd");

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

  /* Appends the text between two places, what was drafted in spans that name the source. */
  appendTo(parent, start, end) {
    let low = 0;
    let high = this.runs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.runs[middle].end > start) high = middle;
      else low = middle + 1;
    }
    while (start < end) {
      const run = this.runs[low++];
      const until = Math.min(run.end, end);
      const text = this.text.slice(start, until);
      parent.append(run.source === null ? text : tinted(text, run.source));
      start = until;
    }
  }
}

/* Blocks. A line is a range of the text, without what a quote or list item puts before it. */

const FENCE = /^ {0,3}(`{3,}|~{3,}) *([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)(?:([-*+])|(\d{1,9})[.)])(?: +|$)/;
const TABLE_RULE = /^[ :|-]+$/;
const CLOSING_HASHES = /[ \t]#+$/;
const DEEPEST = 8;
/* A browser takes seconds for a table of thousands of columns. */
const MOST_COLUMNS = 100;
/* Marks are looked for within so many characters of a line: the time for it grows with the square. */
const LONGEST_MARKED = 4000;
const LINES_OF_PART = 50;
/* A text whose first letter is of such a script; with dir="auto" a browser looks through an element
   each time that something is added to it. */
const RIGHT_TO_LEFT = /^\P{L}*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u;

const linesOf = (text, start) => {
  const lines = [];
  for (let end = start; start <= text.length; start = end + 1) {
    end = text.indexOf("\n", start);
    if (end < 0) end = text.length;
    lines.push({ start, end });
  }
  return lines;
};

/* Makes what a node has the given nodes; those at its beginning that are there already stay. */
function fill(parent, nodes, cursor = parent.firstChild) {
  let at = 0;
  for (; cursor && cursor === nodes[at]; at += 1) cursor = cursor.nextSibling;
  while (cursor) {
    const next = cursor.nextSibling;
    cursor.remove();
    cursor = next;
  }
  parent.append(...nodes.slice(at));
}

/* Reads text that grows. Text that was read once does not change, so what a reading makes of the same
   lines is kept for the next one: a frame makes the nodes of what is new. */
class Blocks {
  before = new Map();
  made = new Map();

  constructor(sourced) {
    this.sourced = sourced;
  }

  /* Returns the blocks of lines, as `of` does. */
  read(lines) {
    [this.before, this.made] = [this.made, new Map()];
    return this.of(lines);
  }

  once(key, make) {
    const value = this.before.get(key) ?? make();
    this.made.set(key, value);
    return value;
  }

  /* Returns the element that begins at a line, with these nodes in it; one of text has a direction. */
  node(name, line, nodes, properties = null) {
    const node = this.once(`${name} ${line.start}`, () => element(name, properties ?? {}));
    const direction = RIGHT_TO_LEFT.test(this.textOf(line)) ? "rtl" : "ltr";
    if (!properties && node.dir !== direction) node.dir = direction;
    fill(node, nodes);
    return node;
  }

  textOf(line) {
    return this.sourced.text.slice(line.start, line.end);
  }

  /* Returns the blocks of lines: the nodes of each, with the index of its first line. A paragraph that
     begins an item needs no space around it, so it is its text alone. */
  of(lines, depth = 0, inItem = false) {
    const found = [];
    for (let at = 0; at < lines.length; ) {
      if (!this.textOf(lines[at]).trim()) {
        at += 1;
        continue;
      }
      let [node, next] = this.block(lines, at, depth) ?? [];
      let nodes = [node];
      if (!node) {
        [nodes, next] = this.paragraph(lines, at);
        if (!inItem || found.length) nodes = [this.node("p", lines[at], nodes)];
      }
      found.push({ nodes, at });
      at = next;
    }
    return found;
  }

  inside(lines, depth, inItem) {
    return this.of(lines, depth + 1, inItem).flatMap(({ nodes }) => nodes);
  }

  /* Returns the block that begins at a line and the line after it, or null for a paragraph. */
  block(lines, at, depth) {
    const line = lines[at];
    const text = this.textOf(line);
    let match;
    if ((match = FENCE.exec(text))) return this.code(lines, at, match);
    if ((match = HEADING.exec(text))) {
      const closing = CLOSING_HASHES.exec(text.trimEnd())?.index ?? text.length;
      const begin = match[0].length;
      const words = this.inline(line.start + begin, line.start + Math.max(begin, closing));
      return [this.node(`h${match[1].length}`, line, words), at + 1];
    }
    if (RULE.test(text)) return [this.node("hr", line, []), at + 1];
    if (depth < DEEPEST) {
      if (QUOTE.test(text)) return this.quote(lines, at, depth);
      if ((match = ITEM.exec(text))) return this.list(lines, at, match, depth);
    }
    if (text.includes("|") && at + 1 < lines.length && this.isTableRule(lines[at + 1])) {
      const columns = this.cells(line).length;
      if (columns <= MOST_COLUMNS) return this.table(lines, at, columns);
    }
    return null;
  }

  code(lines, at, [, fence, language]) {
    const { start, end } = lines[at];
    const code = this.once(`code ${start}-${end}`, () => new Code(this.sourced, fence, language.trim()));
    return [code.node, at + 1 + code.read(lines.slice(at + 1))];
  }

  quote(lines, at, depth) {
    const first = lines[at];
    const inner = [];
    for (; at < lines.length; at += 1) {
      const match = QUOTE.exec(this.textOf(lines[at]));
      if (!match) break;
      inner.push({ start: lines[at].start + match[0].length, end: lines[at].end });
    }
    return [this.node("blockquote", first, this.inside(inner, depth)), at];
  }

  list(lines, at, first, depth) {
    const begin = lines[at];
    const ordered = first[3] !== undefined;
    const items = [];
    for (;;) {
      const match = at < lines.length ? ITEM.exec(this.textOf(lines[at])) : null;
      if (!match || (match[3] !== undefined) !== ordered || RULE.test(this.textOf(lines[at]))) break;
      const [item, next] = this.item(lines, at, match, depth);
      items.push(item);
      at = next;
      // Items may have blank lines between them.
      let following = at;
      while (following < lines.length && !this.textOf(lines[following]).trim()) following += 1;
      if (following > at && following < lines.length && ITEM.test(this.textOf(lines[following]))) {
        at = following;
      }
    }
    const list = this.node(ordered ? "ol" : "ul", begin, items);
    if (ordered) list.start = Number(first[3]);
    return [list, at];
  }

  /* Returns an item: its first line, lines indented below it, and the rest of its paragraph. */
  item(lines, at, match, depth) {
    const first = lines[at];
    const inner = [{ start: first.start + match[0].length, end: first.end }];
    const [most, least] = [match[0].length, match[1].length + 2];
    let afterBlank = false;
    for (at += 1; at < lines.length; at += 1) {
      const text = this.textOf(lines[at]);
      if (!text.trim()) {
        const next = lines[at + 1];
        if (!next || this.indent(this.textOf(next)) < least) break;
        afterBlank = true;
        inner.push(lines[at]);
        continue;
      }
      const indent = this.indent(text);
      if (indent < least && (afterBlank || this.beginsBlock(text))) break;
      inner.push({ start: lines[at].start + Math.min(indent, most), end: lines[at].end });
    }
    return [this.node("li", first, this.inside(inner, depth, true), {}), at];
  }

  indent(text) {
    return text.length - text.trimStart().length;
  }

  beginsBlock(text) {
    return [FENCE, HEADING, RULE, QUOTE, ITEM].some((begin) => begin.test(text));
  }

  isTableRule(line) {
    const text = this.textOf(line);
    return text.includes("|") && text.includes("-") && TABLE_RULE.test(text);
  }

  table(lines, at, columns) {
    const begin = lines[at];
    const row = (line, name) => {
      const cells = this.cells(line).slice(0, columns);
      return this.node("tr", line, cells.map((cell) => this.node(name, cell, this.inline(cell.start, cell.end))), {});
    };
    const head = this.node("thead", begin, [row(begin, "th")], {});
    const rows = [];
    for (at += 2; at < lines.length && this.textOf(lines[at]).includes("|"); at += 1) rows.push(row(lines[at], "td"));
    const table = this.node("table", begin, [head, this.node("tbody", begin, rows, {})], {});
    return [this.node("div", begin, [table], { className: "table", tabIndex: 0 }), at];
  }

  /* Returns the ranges between the bars of a line. */
  cells(line) {
    const text = this.textOf(line);
    const bars = [...text.matchAll(/(?<!\\)\|/g)].map((match) => match.index);
    if (text.slice(0, bars[0]).trim()) bars.unshift(-1);
    if (text.slice(bars.at(-1) + 1).trim()) bars.push(text.length);
    return bars.slice(1).map((bar, place) => {
      const cell = text.slice(bars[place] + 1, bar);
      const start = line.start + bars[place] + 1 + this.indent(cell);
      return { start, end: start + cell.trim().length };
    });
  }

  /* Returns the nodes of a paragraph, and the line after it. */
  paragraph(lines, at) {
    const nodes = [];
    const first = at;
    for (; at < lines.length; at += 1) {
      const { start, end } = lines[at];
      const text = this.textOf(lines[at]);
      if (!text.trim() || (at > first && this.beginsBlock(text))) break;
      if (at > first) nodes.push(this.once(`line ${start}`, () => document.createTextNode("\n")));
      // With its indentation: models write code without a fence, too.
      nodes.push(...this.inline(start, end));
    }
    return [nodes, at];
  }

  /* Returns the nodes of a range with its marks: code, bold, italic, and escaped signs. */
  inline(start, end) {
    const nodes = [];
    for (; start < end; start += LONGEST_MARKED) {
      const until = Math.min(end, start + LONGEST_MARKED);
      nodes.push(...this.once(`${start}-${until}`, () => [...this.marked(element("span"), start, until).childNodes]));
    }
    return nodes;
  }

  marked(parent, start, end, depth = 0) {
    let done = 0;
    const marks = depth > DEEPEST ? [] : this.sourced.text.slice(start, end).matchAll(MARKS);
    for (const match of marks) {
      this.sourced.appendTo(parent, start + done, start + match.index);
      const kind = ["code", "escaped", "strong", "em"].find((name) => match.groups[name] !== undefined);
      const [from, to] = match.indices.groups[kind].map((place) => start + place);
      if (kind === "escaped" || kind === "code") {
        const node = kind === "code" ? element(kind) : parent;
        this.sourced.appendTo(node, from, to);
        if (node !== parent) parent.append(node);
      } else {
        parent.append(this.marked(element(kind), from, to, depth + 1));
      }
      done = match.index + match[0].length;
    }
    this.sourced.appendTo(parent, start + done, end);
    return parent;
  }
}

const MARKS = new RegExp(
  [
    "(?<!`)(?<ticks>`+)(?!`)(?<code>.+?)(?<!`)\\k<ticks>(?!`)",
    "\\\\(?<escaped>[!-/:-@[-`{-~])",
    "(?<two>\\*\\*|(?<!\\w)__)(?=\\S)(?<strong>.+?)(?<=\\S)\\k<two>(?!\\*|(?<=_)\\w)",
    "(?<one>\\*|(?<!\\w)_)(?=[^\\s*_])(?<em>.+?)(?<=[^\\s*_])\\k<one>(?!\\*|(?<=_)\\w)",
  ].join("|"),
  "dg",
);

/* A block of code. It takes each line once, but for the last one, which may still grow. */
class Code {
  closed = false;
  open = null;
  taken = 0;
  parts = [];
  last = [];

  constructor(sourced, fence, language) {
    this.sourced = sourced;
    this.family = familyOf(language);
    this.closes = new RegExp(`^ {0,3}${fence[0]}{${fence.length},} *$`);
    this.code = element("code", { dir: "ltr" });
    const copy = element("button", { type: "button", textContent: "Copy" });
    copy.setAttribute("aria-label", "Copy this code");
    copy.onclick = () => copyText(copy, this.code.textContent);
    const head = element("div", {}, element("span", { textContent: language || "code" }), copy);
    const pre = element("pre", { tabIndex: 0 }, this.code);
    this.node = element("div", { className: "code" }, head, pre);
  }

  /* Reads the lines below the fence; returns how many belong to the block. */
  read(lines) {
    if (this.closed) return this.taken;
    for (const node of this.last) node.remove();
    this.last = [];
    for (; this.taken < lines.length && !this.closed; this.taken += 1) {
      const line = lines[this.taken];
      const text = this.sourced.text.slice(line.start, line.end);
      const isLast = this.taken === lines.length - 1;
      const closes = this.closes.test(text);
      if (isLast && (closes || !text)) break;
      this.closed = closes;
      if (closes) continue;
      const [nodes, open] = this.line(line, text);
      this.partOf(this.taken).append(...nodes);
      if (isLast) {
        this.last = nodes;
        break;
      }
      this.open = open;
    }
    // A fence that ends the text has opened nothing yet.
    this.node.hidden = !this.code.firstChild?.firstChild;
    return this.closed ? this.taken : lines.length;
  }

  /* Lines are in parts, so that a browser lays out what is new, not the whole block in each frame. */
  partOf(line) {
    return (this.parts[Math.floor(line / LINES_OF_PART)] ??= this.code.appendChild(element("span")));
  }

  line(line, text) {
    const [found, open] = this.family ? colours(text, this.family, this.open) : [[], null];
    // Whoever drafted the indentation: blocks of tinted blanks would hide the code's shape.
    let done = text.length - text.trimStart().length;
    const all = element("div", {}, text.slice(0, done));
    for (const [kind, begin, end] of [...found, ["", text.length, text.length]]) {
      if (begin > done) this.sourced.appendTo(all, line.start + done, line.start + begin);
      const from = Math.max(begin, done);
      done = Math.max(end, done);
      if (from >= end) continue;
      const span = element("span", { className: kind });
      this.sourced.appendTo(span, line.start + from, line.start + end);
      all.append(span);
    }
    all.append("\n");
    return [[...all.childNodes], open];
  }
}

/* Shows a text that grows: blocks that are complete stay, and the last ones are read again; `finished`
   is told the nodes that stay. */
class MarkdownView {
  constructor(parent, sourced, finished = () => {}) {
    this.parent = parent;
    this.sourced = sourced;
    this.finished = finished;
    this.blocks = new Blocks(sourced);
    this.from = 0;
    this.tail = [];
    this.ended = false;
  }

  update() {
    if (this.ended) return;
    const lines = linesOf(this.sourced.text, this.from);
    const found = this.blocks.read(lines);
    const nodesOf = (blocks) => blocks.flatMap(({ nodes }) => nodes);
    fill(this.parent, nodesOf(found), this.tail[0]);
    // A line that may still grow can yet turn out to belong to the block before it.
    const complete = found.filter((block) => block.at < lines.length - 1);
    const last = Math.max(0, complete.length - 1);
    for (const node of nodesOf(found.slice(0, last))) this.finished(node);
    this.tail = nodesOf(found.slice(last));
    if (found.length) this.from = lines[found[last].at].start;
  }

  /* Nothing more comes. */
  end() {
    this.update();
    if (!this.ended) for (const node of this.tail) this.finished(node);
    this.ended = true;
  }
}
