"use strict";

/* Text files that the next message brings along. */

const MOST_BYTES = 2 ** 20;

let attached = [];

/* As `akunu chat` sends them: each in a fence of its own, before the message. */
function fenced({ name, text }) {
  let ticks = "```";
  while (text.includes(ticks)) ticks += "`";
  return `${name.split(/\s+/).join(" ")}:\n${ticks}\n${text.replace(/\n+$/, "")}\n${ticks}`;
}

const withFiles = (question, files) => [...files.map(fenced), ...(question ? [question] : [])].join("\n\n");

/* Adds files; one that is refused is told at once, and the others are added. */
async function attach(files) {
  const refused = [];
  const refuse = (name, words) => {
    refused.push(`${harmless(name)} ${words}.`);
    showComposerProblem(refused.join(" "));
  };
  showComposerProblem("");
  $("message").focus();
  for (const { name } of files.filter(isLarge)) refuse(name, "has more than 1 MB");
  for (const given of files.filter((one) => !isLarge(one))) {
    try {
      const file = { name: given.name || "pasted.txt", text: await textOf(given) };
      attached.push(file);
      countFile(file).catch((error) => {
        attached = attached.filter((one) => one !== file);
        refuse(file.name, error.message);
      }).finally(showAttached);
    } catch (error) {
      refuse(given.name, error.message);
    }
    showAttached();
  }
}

const isLarge = ({ size }) => size > MOST_BYTES;

async function textOf(file) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch (error) {
    throw new Error(error instanceof TypeError ? "is not a text file in UTF-8" : "cannot be read");
  }
  if (text.includes("\0")) throw new Error("is not a text file");
  return text;
}

/* Adds what a file takes of the context: the difference that it makes to a message. Without a server
   it is not known; a file that takes the whole context is an error. */
async function countFile(file) {
  const count = (content) => countTokens([{ role: "user", content }]).catch(() => NaN);
  const [with_, without] = file.text.length > LONG * model.context ? [Infinity, 0] : await Promise.all([count(`${fenced(file)}\n\nx`), count("x")]);
  const tokens = with_ - without;
  if (tokens >= model.context) throw new Error(`takes ${beyondContext(tokens)}: give a part of it`);
  if (tokens) file.tokens = tokens;
}

const beyondContext = (tokens) =>
  `${tokens < Infinity ? counted(tokens, "token") : "too many tokens"}, and the model's context has ${number.format(model.context)}`;

/* Characters per token of the context above which a text certainly does not fit; 4 is usual. */
const LONG = 16;

/* Whether a message with files fits into the context, as the server counts it; says so if not. */
async function filesFit({ question, files }) {
  if (!files.length) return true;
  try {
    const tokens = await countTokens([{ role: "user", content: withFiles(question, files) }], $("system").value.trim());
    if (tokens < model.context) return true;
    const some = files.length === 1 ? "this file" : "these files";
    showComposerProblem(`With ${some} the message takes ${beyondContext(tokens)}. Remove a file, or give a part of it.`);
  } catch (error) {
    showComposerProblem(error.message);
  }
  return false;
}

function showAttached() {
  const chips = attached.map((file) => {
    const remove = action("close", `Remove ${file.name}`, () => {
      attached = attached.filter((one) => one !== file);
      showComposerProblem("");
      showAttached();
      $("message").focus();
    });
    const open = element("details", {}, ...unfolded(file));
    return element("li", { className: "chip" }, open, remove);
  });
  refill($("chips"), chips);
  $("chips").hidden = !chips.length;
  keepUnsent();
}

function unfolded({ name, text, tokens }) {
  const words = element("span", { className: "name", textContent: harmless(name), title: harmless(name) });
  const size = tokens === undefined ? [] : [element("span", { className: "size", textContent: counted(tokens, "token") })];
  const code = element("code", { dir: "ltr", textContent: harmless(text) });
  return [element("summary", {}, words, ...size), element("pre", { tabIndex: 0 }, code)];
}

/* A file of a message that was sent. */
const shownFile = (file) => element("details", { className: "chip" }, ...unfolded(file));

function showComposerProblem(words) {
  $("composer-problem").textContent = words;
  $("composer-problem").hidden = !words;
}

$("attach").addEventListener("click", () => $("files").click());
$("files").addEventListener("change", async ({ target }) => {
  await attach([...target.files]);
  target.value = "";
});
for (const name of ["dragover", "drop", "dragleave"]) {
  document.addEventListener(name, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    // Without, the browser would leave the page and show the file.
    event.preventDefault();
    document.body.classList.toggle("dropping", name === "dragover");
    if (name === "drop") attach([...event.dataTransfer.files]);
  });
}
