"use strict";

/* What every part of the page uses: elements, numbers in words, and requests to the server.
   The key is kept in this variable alone. sessionStorage would outlive the page in the browser's
   files of a session; asking again after a reload costs one paste. */

const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const decimal = new Intl.NumberFormat("en", { maximumFractionDigits: 1, minimumFractionDigits: 1 });

const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

/* A shape of those in page.html. */
const icon = (name) => {
  const [svg, use] = ["svg", "use"].map((one) => document.createElementNS("http://www.w3.org/2000/svg", one));
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
};

/* Controls, and the characters that reorder text when it is shown (UAX #9), as in shown_text.py. */
const REPLACED = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f]/g;

const harmless = (text) => text.replace(/\r/g, "").replace(REPLACED, "\ufffd");

let key = "";
let model = { id: "", context: 0, loaded: false };

function counted(count, noun) {
  const plural = noun.endsWith("s") ? `${noun}es` : noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;
  return `${number.format(count)} ${count === 1 ? noun : plural}`;
}

/* Requests. A failure is a Problem, in words that say what to do. */

class Problem extends Error {
  constructor(words, { retryAfter = 0, code = "" } = {}) {
    super(words);
    Object.assign(this, { retryAfter, code });
  }
}

async function request(path, options = {}) {
  for (;;) {
    const headers = { ...options.headers, ...(key && { authorization: `Bearer ${key}` }) };
    let response;
    try {
      response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem("The server does not answer. Check that akunu serve is running, then retry.");
    }
    if (response.ok) return response;
    if (response.status !== 401) throw await problemOf(response);
    await askForKey(key !== "");
  }
}

/* Sends a value as JSON. */
const post = (path, value, signal = null) =>
  request(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(value), signal });

/* The state of the server; null where it does not tell. */
const health = () => fetch("/health").then((response) => response.json()).catch(() => null);

async function problemOf(response) {
  // Words of a proxy may have another form.
  const error = (await response.json().catch(() => null))?.error ?? {};
  const retryAfter = Number(response.headers.get("retry-after")) || 0;
  return new Problem(wordsOf(error, response.status), { retryAfter, code: error.code });
}

const TOO_LONG = "context_length_exceeded";

const largerContext = () =>
  model.context < model.trained
    ? `start the server with a larger --context (the model has ${number.format(model.trained)} tokens)`
    : "choose a model with a larger context";

function wordsOf(error, status) {
  if (error.code === TOO_LONG) {
    return `This chat no longer fits into the model's context. Begin a new chat, shorten the message or the system prompt, or ${largerContext()}. (${error.message})`;
  }
  const said = error.message ? harmless(String(error.message)).slice(0, 1000) : `status ${status}`;
  const intro = { server_busy: "The server is busy", out_of_memory: "The server has no memory left for this" };
  return `${intro[error.code] ?? "The server could not answer"}: ${said}.`;
}

function askForKey(wrong) {
  const dialog = $("key-dialog");
  if (wrong) $("key-words").textContent = "The server does not know this key. Give one of the lines in its file of keys.";
  $("key").value = "";
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve, reject) => {
    $("key-form").onsubmit = (event) => {
      event.preventDefault();
      key = $("key").value.trim();
      dialog.close();
      resolve();
    };
    dialog.oncancel = () => reject(new Problem("This server answers only with a key. Retry to give one."));
  });
}

/* Yields the values of a response's server-sent events; a stream without its end is a Problem. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (line === "data: [DONE]") return;
        if (line.startsWith("data: ")) yield JSON.parse(line.slice(6));
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  throw new Problem("The connection ended before the reply was complete. Check that akunu serve is running, then retry.");
}
