"use strict";

/* Colours of code: comments, strings, numbers and keywords of a line, for families of languages. It
   is a scanner of our own, since a library would be a hundred times its size, and is not to be in
   the repository. What it does not know stays plain. */

const LONGEST_COLOURED = 2000;

const setOf = (text) => new Set(text.split(" "));

const WORDS = {
  c: setOf(
    "abstract as async auto await bool boolean break byte case catch char class const constexpr continue crate debugger " +
      "def default defer delete do double dyn else enum export extends extern false final finally float fn for foreach " +
      "from func function go goto guard if impl implements import in inline instanceof int interface internal is let " +
      "lock long loop map match mod move mut namespace new nil null nullptr of operator out override package private " +
      "protected protocol pub public range readonly ref return self short signed sizeof static string struct super " +
      "switch template this throw throws trait true try type typedef typename typeof union unsafe unsigned use using " +
      "val var virtual void volatile when where while with yield",
  ),
  python: setOf(
    "and as assert async await break case class continue def del elif else except False finally for from global if " +
      "import in is lambda match None nonlocal not or pass raise return self True try while with yield",
  ),
  shell: setOf(
    "begin break case cd class continue def do done echo elif else elsif end esac exit export false fi for function if " +
      "in local module next nil not or require rescue return self set source then true unless until when while yield " +
      "FROM RUN COPY CMD ENV WORKDIR ENTRYPOINT",
  ),
  sql: setOf(
    "add all alter and as asc begin between by case commit constraint create cross default delete desc distinct drop " +
      "else end exists false foreign from full function group having if in index inner insert into is join key left " +
      "like limit local not null offset on or order outer primary references repeat return right rollback select set " +
      "table then true union unique until update values view when where while with data deriving instance let module newtype type",
  ),
  none: new Set(),
};

const NUMBER = /\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w?\b/;
const DOUBLE = /"(?:\\.|[^"\\])*"/;
const SINGLE = /'(?:\\.|[^'\\])*'/;
const CHARACTER = /'(?:\\[^']+|[^'\\])'/;

/* A family: comments to the end of the line, ranges that may go over lines (what opens them, what
   closes them, and their kind), strings of one line, and keywords. */
const family = (words, line, ranges, strings = [DOUBLE, SINGLE], anyCase = false) => {
  const parts = [
    ...ranges.map(([open]) => `(?<range>${open.replace(/[*]/g, "\\$&")})`),
    ...(line ? [`(?<comment>${line.source}.*)`] : []),
    ...strings.map((string) => `(?<string>${string.source})`),
    `(?<number>${NUMBER.source})`,
    "(?<word>[A-Za-z_$][\\w$]*)",
  ];
  // Alternatives may not share a name in browsers of 2023.
  const names = [];
  const source = parts.map((part, place) => part.replace(/^\(\?<(\w+)>/, (_, name) => (names.push(name), `(?<k${place}>`)));
  return { pattern: new RegExp(source.join("|"), "g"), names, ranges, words: WORDS[words], anyCase };
};

const BLOCK = ["/*", "*/", "comment"];
const FAMILIES = {
  script: family("c", /\/\//, [BLOCK, ["`", "`", "string"]]),
  c: family("c", /\/\//, [BLOCK], [DOUBLE, CHARACTER]),
  python: family("python", /#/, [['"""', '"""', "string"], ["'''", "'''", "string"]]),
  shell: family("shell", /(?<![\w$&{])#/, []),
  sql: family("sql", /--/, [BLOCK], undefined, true),
  css: family("none", null, [BLOCK]),
  markup: family("none", null, [["<!--", "-->", "comment"]]),
};

const LANGUAGES = new Map(
  Object.entries({
    script: "js javascript jsx mjs ts typescript tsx json jsonc json5 php dart",
    c: "c h cpp c++ cc hpp objc java kotlin kt swift go golang rust rs cs csharp c# scala zig metal cuda glsl",
    python: "python py python3 pyi starlark",
    shell: "sh bash shell zsh console fish ruby rb yaml yml toml ini conf make makefile dockerfile r perl elixir",
    sql: "sql sqlite postgresql lua haskell hs elm ada",
    css: "css scss less",
    markup: "html xml svg vue xhtml",
  }).flatMap(([name, languages]) => languages.split(" ").map((language) => [language, FAMILIES[name]])),
);

const familyOf = (language) => LANGUAGES.get(language.trim().split(/[\s,{]/)[0].toLowerCase());

/* Returns the coloured ranges of a line, as [kind, begin, end], and the range that is open at its
   end; `open` is that of the line before. */
function colours(line, { pattern, names, ranges, words, anyCase }, open) {
  const found = [];
  if (line.length > LONGEST_COLOURED) return [found, open];
  let at = 0;
  for (;;) {
    if (open) {
      const [opening, closing, kind] = open.range;
      const close = line.indexOf(closing, at + (open.here ? opening.length : 0));
      const end = close < 0 ? line.length : close + closing.length;
      if (end > at) found.push([kind, at, end]);
      if (close < 0) return [found, { range: open.range }];
      at = end;
      open = null;
    }
    pattern.lastIndex = at;
    let match;
    while ((match = pattern.exec(line))) {
      const place = names.findIndex((_, index) => match.groups[`k${index}`] !== undefined);
      const kind = names[place];
      if (kind === "range") break;
      const word = anyCase ? match[0].toLowerCase() : match[0];
      if (kind !== "word") found.push([kind, match.index, match.index + match[0].length]);
      else if (words.has(word)) found.push(["keyword", match.index, match.index + word.length]);
    }
    if (!match) return [found, null];
    at = match.index;
    open = { range: ranges.find(([opening]) => opening === match[0]), here: true };
  }
}
