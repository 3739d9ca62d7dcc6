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

async function attach(files) {
  const wrong = [];
  for (const file of files) {
    try {
      attached.push({ name: file.name || "pasted.txt", text: await textOf(file) });
    } catch (error) {
      wrong.push(`${harmless(file.name)} ${error.message}.`);
    }
  }
  showComposerProblem(wrong.join(" "));
  showAttached();
  await Promise.all(attached.filter(({ tokens }) => tokens === undefined).map(countFile));
  $("message").focus();
}

async function textOf(file) {
  if (file.size > MOST_BYTES) throw new Error("has more than 1 MB");
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch (error) {
    throw new Error(error instanceof TypeError ? "is not a text file in UTF-8" : "cannot be read");
  }
  if (text.includes("\0")) throw new Error("is not a text file");
  return text;
}

async function countTokens(messages, system = "") {
  const response = await request("/v1/messages/count_tokens", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: model.id, messages, ...(system && { system }) }),
  });
  return (await response.json()).input_tokens;
}

/* Adds what a file takes of the context: the difference that it makes to a message. */
async function countFile(file) {
  const count = (content) => countTokens([{ role: "user", content }]);
  try {
    const [with_, without] = await Promise.all([count(`${fenced(file)}\n\nx`), count("x")]);
    file.tokens = with_ - without;
    if (file.tokens >= model.context) showComposerProblem(`${harmless(file.name)} ${tooLong(file.tokens)}`);
  } catch (error) {
    showComposerProblem(error.message);
  }
  showAttached();
}

const tooLong = (tokens) =>
  `takes ${counted(tokens, "token")}, and the model's context has ${number.format(model.context)}. Remove it, or give a part of it.`;

/* Whether a message with files fits into the context, as the server counts it; says so if not. */
async function filesFit(messages, system) {
  if (!attached.length) return true;
  try {
    const tokens = await countTokens(messages, system);
    if (tokens < model.context) return true;
    const whole = `With ${attached.length === 1 ? "this file" : "these files"} the chat takes ${counted(tokens, "token")}`;
    showComposerProblem(`${whole}, and the model's context has ${number.format(model.context)}. Remove a file, or begin a new chat.`);
  } catch (error) {
    showComposerProblem(error.message);
  }
  return false;
}

const fileWords = ({ name, tokens }) => [
  element("span", { className: "name", textContent: harmless(name), title: harmless(name) }),
  ...(tokens === undefined ? [] : [element("span", { className: "size", textContent: counted(tokens, "token") })]),
];

function showAttached() {
  const chips = attached.map((file) => {
    const remove = action("close", `Remove ${file.name}`, () => {
      attached = attached.filter((one) => one !== file);
      showComposerProblem("");
      showAttached();
      $("message").focus();
    });
    const chip = element("li", { className: "chip" }, ...fileWords(file), remove);
    chip.classList.toggle("too-long", file.tokens >= model.context);
    return chip;
  });
  refill($("chips"), chips);
  $("chips").hidden = !chips.length;
}

/* A file of a message that was sent; its text can be unfolded. */
function shownFile(file) {
  const text = element("pre", { tabIndex: 0 }, element("code", { dir: "ltr", textContent: harmless(file.text) }));
  return element("details", { className: "chip" }, element("summary", {}, ...fileWords(file)), text);
}

function showComposerProblem(words) {
  $("composer-problem").textContent = words;
  $("composer-problem").hidden = !words;
}

$("attach").addEventListener("click", () => $("files").click());
$("files").addEventListener("change", async ({ target }) => {
  await attach([...target.files]);
  target.value = "";
});
$("message").addEventListener("paste", (event) => {
  const { files } = event.clipboardData;
  // Text from an office program comes as a picture, too.
  if (!files.length || event.clipboardData.types.includes("text/plain")) return;
  event.preventDefault();
  attach([...files]);
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
