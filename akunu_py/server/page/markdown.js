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
/* Marks within longer lines are left as text: the time to look for them grows with the square. */
const LONGEST_MARKED = 4000;

const linesOf = (text, start) => {
  const lines = [];
  for (let end = start; start <= text.length; start = end + 1) {
    end = text.indexOf("\n", start);
    if (end < 0) end = text.length;
    lines.push({ start, end });
  }
  return lines;
};

class Blocks {
  constructor(sourced) {
    this.sourced = sourced;
  }

  textOf(line) {
    return this.sourced.text.slice(line.start, line.end);
  }

  /* Returns the blocks of lines: nodes, each with the index of its first line. */
  of(lines, depth = 0) {
    const found = [];
    for (let at = 0; at < lines.length; ) {
      if (!this.textOf(lines[at]).trim()) {
        at += 1;
        continue;
      }
      const [node, next, open] = this.block(lines, at, depth);
      found.push({ node, at, open });
      at = next;
    }
    return found;
  }

  /* Returns the block that begins at a line, the line after it, and the code whose fence is open. */
  block(lines, at, depth) {
    const text = this.textOf(lines[at]);
    let match;
    if ((match = FENCE.exec(text))) return this.code(lines, at, match);
    if ((match = HEADING.exec(text))) {
      const node = element(`h${match[1].length}`, { dir: "auto" });
      const closing = CLOSING_HASHES.exec(text.trimEnd())?.index ?? text.length;
      const begin = match[0].length;
      this.inline(node, lines[at].start + begin, lines[at].start + Math.max(begin, closing));
      return [node, at + 1];
    }
    if (RULE.test(text)) return [element("hr"), at + 1];
    if (depth < DEEPEST) {
      if (QUOTE.test(text)) return this.quote(lines, at, depth);
      if ((match = ITEM.exec(text))) return this.list(lines, at, match, depth);
    }
    if (text.includes("|") && at + 1 < lines.length && this.isTableRule(lines[at + 1])) {
      const columns = this.cells(lines[at]).length;
      if (columns <= MOST_COLUMNS) return this.table(lines, at, columns);
    }
    return this.paragraph(lines, at);
  }

  code(lines, at, [, fence, language]) {
    const code = new Code(this.sourced, fence, language.trim());
    const next = at + 1 + code.read(lines.slice(at + 1));
    // The line of a fence may still grow to another one.
    return [code.node, next, !code.closed && at + 1 < lines.length ? code : null];
  }

  quote(lines, at, depth) {
    const inner = [];
    for (; at < lines.length; at += 1) {
      const match = QUOTE.exec(this.textOf(lines[at]));
      if (!match) break;
      inner.push({ start: lines[at].start + match[0].length, end: lines[at].end });
    }
    const node = element("blockquote", { dir: "auto" });
    node.append(...this.of(inner, depth + 1).map((block) => block.node));
    return [node, at];
  }

  list(lines, at, first, depth) {
    const ordered = first[3] !== undefined;
    const list = element(ordered ? "ol" : "ul", { dir: "auto" });
    if (ordered) list.start = Number(first[3]);
    for (;;) {
      const match = at < lines.length ? ITEM.exec(this.textOf(lines[at])) : null;
      if (!match || (match[3] !== undefined) !== ordered || RULE.test(this.textOf(lines[at]))) break;
      const [item, next] = this.item(lines, at, match, depth);
      list.append(item);
      at = next;
      // Items may have blank lines between them.
      let following = at;
      while (following < lines.length && !this.textOf(lines[following]).trim()) following += 1;
      if (following > at && following < lines.length && ITEM.test(this.textOf(lines[following]))) {
        at = following;
      }
    }
    return [list, at];
  }

  /* Returns an item: its first line, lines indented below it, and the rest of its paragraph. */
  item(lines, at, match, depth) {
    const inner = [{ start: lines[at].start + match[0].length, end: lines[at].end }];
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
    const node = element("li");
    const blocks = this.of(inner, depth + 1).map((block) => block.node);
    // A paragraph alone needs no space around it.
    if (blocks[0]?.tagName === "P") node.append(...blocks.shift().childNodes);
    node.append(...blocks);
    return [node, at];
  }

  indent(text) {
    return text.length - text.trimStart().length;
  }

  beginsBlock(text) {
    const item = ITEM.exec(text);
    return (
      FENCE.test(text) || HEADING.test(text) || RULE.test(text) || QUOTE.test(text) || item !== null
    );
  }

  isTableRule(line) {
    const text = this.textOf(line);
    return text.includes("|") && text.includes("-") && TABLE_RULE.test(text);
  }

  table(lines, at, columns) {
    const table = element("table");
    const row = (line, name) => {
      const made = element("tr");
      for (const { start, end } of this.cells(line).slice(0, columns)) {
        const cell = element(name, { dir: "auto" });
        this.inline(cell, start, end);
        made.append(cell);
      }
      return made;
    };
    table.append(element("thead", {}, row(lines[at], "th")));
    const body = element("tbody");
    for (at += 2; at < lines.length && this.textOf(lines[at]).includes("|"); at += 1) {
      body.append(row(lines[at], "td"));
    }
    table.append(body);
    return [element("div", { className: "table", tabIndex: 0 }, table), at];
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

  paragraph(lines, at) {
    const node = element("p", { dir: "auto" });
    const first = at;
    for (; at < lines.length; at += 1) {
      const text = this.textOf(lines[at]);
      if (!text.trim() || (at > first && this.beginsBlock(text))) break;
      if (at > first) node.append("\n");
      // With its indentation: models write code without a fence, too.
      this.inline(node, lines[at].start, lines[at].end);
    }
    return [node, at];
  }

  /* Appends a range with its marks: code, bold, italic, and escaped signs. */
  inline(parent, start, end, depth = 0) {
    const text = this.sourced.text.slice(start, end);
    let done = 0;
    const marks = text.length > LONGEST_MARKED || depth > DEEPEST ? [] : text.matchAll(MARKS);
    for (const match of marks) {
      this.sourced.appendTo(parent, start + done, start + match.index);
      const kind = ["code", "escaped", "strong", "em"].find((name) => match.groups[name] !== undefined);
      const [from, to] = match.indices.groups[kind].map((place) => start + place);
      if (kind === "escaped") {
        this.sourced.appendTo(parent, from, to);
      } else {
        const node = element(kind);
        if (kind === "code") this.sourced.appendTo(node, from, to);
        else this.inline(node, from, to, depth + 1);
        parent.append(node);
      }
      done = match.index + match[0].length;
    }
    this.sourced.appendTo(parent, start + done, end);
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

  /* Reads the lines after those that were complete; returns how many belong to the block. */
  read(lines) {
    for (const node of this.last) node.remove();
    this.last = [];
    let at = 0;
    for (; at < lines.length && !this.closed; at += 1) {
      const text = this.sourced.text.slice(lines[at].start, lines[at].end);
      const isLast = at === lines.length - 1;
      if (this.closes.test(text)) {
        this.closed = !isLast;
        at += 1;
        break;
      }
      if (isLast && !text) continue;
      const [nodes, open] = this.line(lines[at], text);
      if (isLast) this.last = nodes;
      else this.open = open;
      this.code.append(...nodes);
    }
    // A fence that ends the text has opened nothing yet.
    this.node.hidden = !this.code.firstChild;
    return at;
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

/* Shows a text that grows: blocks that are complete stay, the last ones are made anew; `finished`
   is told the nodes that stay. */
class MarkdownView {
  constructor(parent, sourced, finished = () => {}) {
    this.parent = parent;
    this.sourced = sourced;
    this.finished = finished;
    this.blocks = new Blocks(sourced);
    this.from = 0;
    this.tail = [];
    this.open = null;
    this.ended = false;
  }

  update() {
    if (this.ended) return;
    let lines = linesOf(this.sourced.text, this.from);
    if (this.open) {
      const read = this.open.read(lines);
      if (!this.open.closed) {
        this.from = lines.at(-1).start;
        return;
      }
      this.finished(this.open.node);
      this.open = null;
      lines = lines.slice(read);
      this.from = lines[0].start;
    }
    const found = this.blocks.of(lines);
    for (const node of this.tail) node.remove();
    this.parent.append(...found.map((block) => block.node));
    this.open = found.at(-1)?.open ?? null;
    // A line that may still grow can yet turn out to belong to the block before it.
    const complete = found.filter((block) => block.at < lines.length - 1);
    const last = Math.max(0, complete.length - 1);
    for (const block of found.slice(0, last)) this.finished(block.node);
    this.tail = this.open ? [] : found.slice(last).map((block) => block.node);
    if (this.open) this.from = lines.at(-1).start;
    else if (found.length) this.from = lines[found[last].at].start;
  }

  /* Nothing more comes. */
  end() {
    this.update();
    if (!this.ended) for (const node of this.open ? [this.open.node] : this.tail) this.finished(node);
    this.ended = true;
  }
}
