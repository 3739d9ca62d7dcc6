"use strict";

/* Files of chats. JSON has every branch of a chat, Markdown the one that is shown. */

const FORMAT = "akunu-chats";

/* A turn of a file has the place of the turn that it follows, -1 for none. */
const exported = ({ title, system }, turns) => ({
  title,
  system,
  turns: turns.map(({ parent, question, files, thinking, content, origin }) => ({
    parent: turns.findIndex(({ id }) => id === parent),
    question,
    files: files.map(({ name, text }) => ({ name, text })),
    thinking,
    content,
    // What made the reply: { model, date, settings }.
    origin,
  })),
});

const asJson = (chats) => `${JSON.stringify({ format: FORMAT, version: 1, chats }, null, 1)}\n`;

/* The comments say whose text follows; a line of a text that looks like one gets a backslash. */
const MARK = /^<!-- akunu: (question|file|thinking|reply)(?: (.*))? -->$/m;
const HEADED = ["question", "reply"];
const escaped = (text) => text.replace(/^(?=\\*<!-- akunu:)/gm, "\\");
const unescaped = (text) => text.replace(/^\\(?=\\*<!-- akunu:)/gm, "");

function asMarkdown(title, turns) {
  const parts = [`# ${title.replace(/\s+/g, " ")}`];
  // Ahead of the first mark, where an import reads nothing.
  const origin = turns.findLast((turn) => turn.origin)?.origin;
  if (origin) parts.push(`With ${origin.model}, ${origin.date}; settings: ${JSON.stringify(origin.settings)}.`);
  const part = (kind, heading, text) => text && parts.push(`<!-- akunu: ${kind} -->`, ...(heading ? [heading] : []), escaped(text));
  for (const { question, files, thinking, content } of turns) {
    for (const { name, text } of files) part(`file ${encodeURIComponent(name)}`, "", text);
    part("question", "## You", question || "(files)");
    part("thinking", "", thinking);
    part("reply", "## Reply", content);
  }
  return `${parts.join("\n\n")}\n`;
}

/* Returns the chats of a file that was exported, each as a function that makes its records. */
function readChats(text) {
  const isJson = text.trimStart().startsWith("{");
  const { format, chats } = isJson ? JSON.parse(text) : { format: FORMAT, chats: [text] };
  if (format !== FORMAT || !list(chats).length) throw new Error("it has no chats of this page");
  return chats.map((chat) => () => recordsOf(isJson ? chatOfJson(chat) : chatOfMarkdown(chat)));
}

function recordsOf({ title, system, turns }) {
  if (!turns.length) throw new Error("it has no messages");
  const chat = { ...newChatRecord(), title: title || titleOf(turns[0].question, turns[0].files), named: Boolean(title), system };
  const ids = turns.map(() => newId());
  const made = turns.map((turn, place) => ({ ...turn, id: ids[place], parent: ids[turn.parent] ?? null, begun: chat.changed + place }));
  return { chat: { ...chat, leaf: ids.at(-1) }, turns: made.map((one) => ({ ...new Exchange(one).record, chat: chat.id })) };
}

/* What makes two chats the same, however they were exported. */
const contentOf = ({ title }, turns) => JSON.stringify([title, turns.map(({ question, content }) => [question.trim(), content.trim()])]);

const string = (value) => (typeof value === "string" ? value : "");
const word = (value) => string(value).replace(/\s+/g, " ").slice(0, LONGEST_TITLE);
const list = (value) => (Array.isArray(value) ? value : []);

const chatOfJson = (chat) => ({
  title: string(chat?.title).slice(0, LONGEST_TITLE),
  system: string(chat?.system),
  turns: list(chat?.turns).map((turn, place) => ({
    // A turn comes after the one that it follows, so that no turns follow each other in a circle.
    parent: Number.isInteger(turn?.parent) && turn.parent < place ? turn.parent : -1,
    question: string(turn?.question),
    files: list(turn?.files).map((file) => ({ name: string(file?.name), text: string(file?.text) })),
    thinking: string(turn?.thinking),
    content: string(turn?.content),
    origin: turn?.origin && { model: word(turn.origin.model), date: word(turn.origin.date), settings: turn.origin.settings ?? {} },
  })),
});

function chatOfMarkdown(text) {
  const [head, ...parts] = text.replace(/\r\n/g, "\n").split(MARK);
  const turns = [];
  let files = [];
  while (parts.length) {
    const [kind, name, part] = parts.splice(0, 3);
    const said = unescaped(HEADED.includes(kind) ? part.trim().replace(/^## .*\n*/, "") : part.trim());
    if (kind === "file") files.push({ name: decodeURIComponent(name ?? ""), text: said });
    else if (kind === "question") {
      turns.push({ parent: turns.length - 1, question: said, files, thinking: "", content: "" });
      files = [];
    } else if (turns.length) turns.at(-1)[kind === "reply" ? "content" : "thinking"] = said;
  }
  return { title: head.split("\n", 1)[0].replace(/^# */, "").slice(0, LONGEST_TITLE), system: "", turns };
}

function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
