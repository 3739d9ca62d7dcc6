"use strict";

/* Sources of drafts, in words and tints. Names are those of akunu's drafters; others are shown as
   they are. */

const COPIED = { prompt: "this conversation", reply: "this reply", memory: "earlier replies", lookup: "the text so far" };
const GUESSED = {
  mtp: "the prediction head",
  "draft-model": "the draft model",
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
const SOURCES = { ...COPIED, ...GUESSED };
/* Those of every chat have a tint each, all others share the last one. */
const TINTED = ["prompt", "reply", "memory", "mtp", "draft-model"].map((source) => SOURCES[source]);
const tintOf = (name) => TINTED.indexOf(name) + 1 || TINTED.length + 1;

const nameOf = (source) =>
  harmless([...new Set(source.split("+").map((name) => SOURCES[name] ?? name))].join(" and "));

const tintedTree = (text, source) => {
  const copied = source.split("+").every((name) => name in COPIED);
  const name = nameOf(source);
  return ["span", { title: `${copied ? "Copied from" : "Guessed by"} ${name}`, "data-tint": String(tintOf(name)) }, text];
};

/* What tints mean, for the line below the header. */
function allSources() {
  const tinted = (name, at) => build(["span", { "data-tint": String(at + 1) }, name]);
  const [conversation, reply, memory, head, model, others] = [...TINTED, "others"].map(tinted);
  return [
    "Tinted words were drafted and then checked, several at a time: copied from ",
    conversation, " ", reply, " ", memory, " or guessed by ", head, " ", model, " ", others, ". The model wrote the rest itself.",
  ];
}

/* The sources of texts, with the share of each, the largest first; the model's own, null, is last. */
function sharesOf(texts) {
  const found = new Map();
  let all = 0;
  for (const [source, size] of texts.flatMap((text) => [...text.sizes()])) {
    // Sources of one name are one.
    const name = source === null ? null : nameOf(source);
    const [first, before] = found.get(name) ?? [source, 0];
    found.set(name, [first, before + size]);
    all += size;
  }
  const shares = [...found.values()].map(([source, size]) => [source, size / all]);
  return shares.sort(([one, a], [other, b]) => (one === null) - (other === null) || b - a);
}

function sourceWords(shares) {
  const entries = shares.map(([source, share]) => {
    const name = source === null ? "the model itself" : nameOf(source);
    const words = source !== null && showsSources() ? build(tintedTree(name, source)) : name;
    return element("span", {}, words, ` ${Math.round(100 * share)} %`);
  });
  return ["Text from ", ...entries.flatMap((entry, at) => (at ? [", ", entry] : [entry]))];
}
