"use strict";

/* Sources of drafts, in words and tints. Names are those of akunu's drafters; others are shown as
   they are. */

const SOURCES = {
  prompt: "this conversation",
  reply: "this reply",
  memory: "earlier replies",
  mtp: "the prediction head",
  "draft-model": "the draft model",
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
};
/* The first five have a tint each, all others share the last one. */
const TINTS = 6;
const names = [...new Set(Object.values(SOURCES))];
const tintOf = (name) => Math.min(TINTS, names.indexOf(name) + 1 || TINTS);

const nameOf = (source) =>
  harmless([...new Set(source.split("+").map((name) => SOURCES[name] ?? name))].join(" and "));

const tintedTree = (text, source) => {
  const name = nameOf(source);
  return ["span", { title: `Drafted from ${name}`, "data-tint": String(tintOf(name)) }, text];
};

const tinted = (text, source) => build(tintedTree(text, source));

/* Every source, for the line below the header. */
function allSources() {
  const own = names.slice(0, TINTS - 1).map((name) => tinted(name, name));
  return ["Text drafted from:", ...own, tinted(names.slice(TINTS - 1).join(", "), "other sources"), "not tinted: the model"];
}

/* The share of each source in texts; sources of one name are one. */
function shares(texts) {
  const sizes = new Map();
  for (const [source, size] of texts.flatMap((text) => [...text.sizes()])) {
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
