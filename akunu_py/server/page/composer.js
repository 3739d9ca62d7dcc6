"use strict";

/* What is typed: it waits here until it is sent, also for the end of a reply under way. */

/* Messages in the order in which they go: { question, files }. */
let queue = [];
let checking = false;
/* How many questions back the message is. */
let recalled = 0;

function submit() {
  const question = $("message").value.trim();
  if (question || attached.length) {
    queue.push({ question, files: attached });
    compose({});
  }
  sendNext();
}

/* Sends the first message that waits, unless a reply is under way. What cannot be sent is typed again. */
async function sendNext() {
  const [next] = queue;
  showQueue();
  if (next && !running && !checking) {
    checking = true;
    const fits = await filesFit(next);
    checking = false;
    // It may have been withdrawn meanwhile.
    if (!queue.includes(next)) return;
    if (fits && send(next.question, next.files)) {
      queue.shift();
      showComposerProblem("");
      showAddress();
    } else withdraw(next);
  }
  showQueue();
}

/* Takes messages back into the field. */
function withdraw(...messages) {
  queue = queue.filter((one) => !messages.includes(one));
  compose(joined(messages));
  showQueue();
}

/* Messages and what is typed, as one message. */
const joined = (messages) => ({
  text: [...messages.map(({ question }) => question), $("message").value].filter(Boolean).join("\n\n"),
  files: [...messages.flatMap(({ files }) => files), ...attached],
});

function compose({ text = "", files = [] }) {
  $("message").value = text;
  attached = files;
  recalled = 0;
  showAttached();
  fitMessage();
}

function fitMessage() {
  $("message").style.height = "auto";
  $("message").style.height = `${$("message").scrollHeight + 2}px`;
  keepUnsent();
}

function showQueue() {
  const entries = queue.map((one) => {
    const words = harmless(one.question) || counted(one.files.length, "file");
    const back = action("close", `Withdraw ${words.slice(0, 40)}`, () => {
      withdraw(one);
      $("message").focus();
    });
    return element("li", { className: "chip" }, element("span", { className: "waiting", dir: "auto", textContent: words }), back);
  });
  refill($("queue"), entries);
  $("queue").hidden = !queue.length;
  keepUnsent();
}

const asked = () => exchanges.map(({ question }) => question).filter(Boolean);

/* Takes the message back that waits last; where none does, the question that many steps further back. */
function recall(step) {
  if (queue.length) withdraw(queue.at(-1));
  else {
    const place = Math.max(0, Math.min(asked().length, recalled + step));
    compose({ text: place ? asked().at(-place) : "", files: attached });
    recalled = place;
  }
}

/* A long text that is pasted is shown as a file, which can be unfolded. */
const FOLDED_LINES = 100;
const FOLDED_CHARACTERS = 10_000;

function paste(event) {
  const { files, types } = event.clipboardData;
  const text = event.clipboardData.getData("text/plain").replace(/\r\n?/g, "\n");
  const lines = text.split("\n").length;
  // Text from an office program comes as a picture, too.
  if (files.length && !types.includes("text/plain")) attach([...files]);
  else if (lines > FOLDED_LINES || text.length > FOLDED_CHARACTERS) attach([new File([text], `pasted, ${counted(lines, "line")}`)]);
  else return;
  event.preventDefault();
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
$("message").addEventListener("keydown", (event) => {
  if (event.isComposing || event.shiftKey) return;
  const { value } = $("message");
  const isBlank = !value || (recalled && value === asked().at(-recalled));
  const step = { ArrowUp: 1, ArrowDown: recalled ? -1 : 0 }[event.key];
  // Enter also ends the choice of a character, which is not to send anything.
  if (event.key === "Enter") submit();
  else if (step && isBlank) recall(step);
  else return;
  event.preventDefault();
});
$("message").addEventListener("input", fitMessage);
$("message").addEventListener("paste", paste);

/* What is not sent outlives a reload with the history of the browser, which each tab has for itself.
   Browsers limit how often it is written. */
const UNSENT_MS = 300;
let timer = 0;

const unsent = () => (store.keeps ? joined(queue) : null);

function keepUnsent() {
  clearTimeout(timer);
  timer = setTimeout(() => history.replaceState(unsent(), ""), UNSENT_MS);
}

function restore() {
  if (!$("message").value) compose(history.state ?? {});
}
