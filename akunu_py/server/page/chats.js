"use strict";

/* The list of chats that this browser keeps: search, names, files, removal. */

let listed = 0;

/* Shows the list; an answer of the store that comes late says nothing any more. */
async function showChats() {
  const turn = ++listed;
  const text = $("search").value.trim();
  let [all, found, problem] = [[], null, ""];
  try {
    [all, found] = await Promise.all([store.chats(), text ? store.find(text) : null]);
  } catch (error) {
    problem = notKept(error);
  }
  if (turn !== listed || $("chat-list").querySelector("input")) return;
  const shown = found ? all.filter(({ id }) => found.has(id)) : all;
  const isKept = all.some(({ id }) => id === chat.id);
  if (turns.size && !isKept) shown.unshift(chat);
  const lists = [];
  let day = null;
  for (const record of shown) {
    if (day !== (day = dayOf(record.changed))) lists.push(element("h2", { textContent: day }), element("ul"));
    lists.at(-1).append(entryOf(record, isKept));
  }
  refill($("chat-list"), lists);
  $("no-chats").textContent = problem || (shown.length ? "" : all.length ? "No chat has these words." : "Chats are kept here, in this browser alone.");
  $("search-field").hidden = $("export-all").hidden = !all.length;
  showKeeps(all.length);
}

const DAYS = { 0: "Today", 1: "Yesterday", 7: "Previous 7 days", 30: "Previous 30 days" };
const month = new Intl.DateTimeFormat("en", { month: "long", year: "numeric" });

/* The heading of a time. Days have 23 to 25 hours where clocks change. */
function dayOf(time) {
  const age = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(time).setHours(0, 0, 0, 0)) / 86_400_000);
  const limit = Object.keys(DAYS).find((days) => age <= days);
  return DAYS[limit] ?? month.format(time);
}

function entryOf(record, isKept) {
  const title = harmless(record.title);
  const open = element("button", { type: "button", className: "open", title }, element("span", { textContent: title, dir: "auto" }));
  if (record.id === chat.id && !isKept) open.append(element("span", { className: "when", textContent: "not kept" }));
  open.onclick = async () => {
    await openChat(record.id);
    if (panels.chats.covers()) panels.chats.show(false);
    $("message").focus();
  };
  const entry = element("li", {}, open);
  if (record.id !== chat.id) return entry;
  open.setAttribute("aria-current", "true");
  const actions = element("div", { className: "actions" });
  actions.append(
    action("edit", "Rename this chat", () => rename(record, open)),
    action("page", "Export this chat as Markdown", () => exportMarkdown(record)),
    action("braces", "Export this chat as JSON", () => exportJson([record])),
    action("trash", "Delete this chat", () => deleteChats([record], `“${title}” deleted.`)),
  );
  entry.append(actions);
  return entry;
}

function rename(record, open) {
  const field = element("input", { value: record.title, maxLength: LONGEST_TITLE });
  field.setAttribute("aria-label", "Title");
  let ended = false;
  const end = async (save) => {
    // The field loses the focus as it goes.
    if (ended) return;
    ended = true;
    field.replaceWith(open);
    if (save && field.value.trim()) {
      chat.title = field.value.trim();
      chat.named = true;
      await keep([]);
      showBranch(chat.leaf);
    }
    await showChats();
    // Unless the user has gone on meanwhile.
    if (document.activeElement === document.body) $("chat-list").querySelector("[aria-current]")?.focus();
  };
  field.onkeydown = (event) => {
    if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
    event.stopPropagation();
    end(event.key === "Enter");
  };
  field.onblur = () => end(true);
  open.replaceWith(field);
  field.focus();
  field.select();
}

async function deleteChats(records, words) {
  const shown = records.some(({ id }) => id === chat.id) && { chat, turns };
  try {
    const undo = await store.remove(records);
    if (shown) newChat();
    else await showChats();
    showNotice(words, async () => {
      await undo();
      if (shown) {
        leave();
        ({ chat, turns } = shown);
        showBranch(chat.leaf);
        showAddress();
      }
      await showChats();
    });
  } catch (error) {
    showNotice(notKept(error));
  }
}

/* Exports and imports. */

const fileName = (title) => title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "chat";

function exportMarkdown(record) {
  download(`${fileName(record.title)}.md`, "text/markdown", asMarkdown(record.title, exchanges));
}

async function exportJson(records) {
  try {
    const turnsOf = ({ id }) => (id === chat.id ? [...turns.values()].map((one) => one.record) : store.turns(id));
    const chats = await Promise.all(records.map(async (record) => exported(record, await turnsOf(record))));
    download(`${records.length === 1 ? fileName(records[0].title) : "chats"}.json`, "application/json", asJson(chats));
  } catch (error) {
    showNotice(notKept(error));
  }
}

async function importFiles(files) {
  let last = null;
  for (const file of files) {
    let chats;
    try {
      chats = readChats(await file.text());
    } catch (error) {
      showNotice(`${harmless(file.name)} cannot be imported: ${error instanceof SyntaxError ? "it is neither JSON nor Markdown of this page" : error.message}.`);
      return;
    }
    try {
      const records = chats.flatMap(({ turns: some }) => some.map((one) => new Exchange(one)).map((one) => ({ ...one.record, chat: some[0].chat })));
      await store.put(chats.map((one) => one.chat), records);
      last = chats.at(-1).chat.id;
    } catch (error) {
      showNotice(notKept(error));
    }
  }
  if (last) await openChat(last);
  $("message").focus();
}

/* Whether chats are kept at all. */

function showKeeps(count) {
  $("keeps").checked = store.keeps;
  $("delete-all").hidden = !count;
  $("delete-all").textContent = `Delete all ${counted(count, "chat")}`;
}

$("search").addEventListener("input", showChats);
$("export-all").addEventListener("click", async () => exportJson(await store.chats()));
$("import-chats").addEventListener("click", () => $("import-files").click());
$("import-files").addEventListener("change", async ({ target }) => {
  await importFiles([...target.files]);
  target.value = "";
});
$("keeps").addEventListener("change", async ({ target }) => {
  store.keeps = target.checked;
  try {
    await store.set("keeps", store.keeps);
    if (store.keeps && turns.size) await keep([...turns.values()]);
  } catch (error) {
    showNotice(notKept(error));
  }
  showChats();
});
$("delete-all").addEventListener("click", async () => {
  const all = await store.chats();
  await deleteChats(all, `${counted(all.length, "chat")} deleted.`);
});

/* What another tab did. Its reply is shown here when it is complete, unless something goes on here. */
tabs.onmessage = async ({ data: { changed, removed = [] } }) => {
  if (removed.includes(chat.id)) {
    // A reply under way keeps its chat.
    if (running) await keep([...turns.values()]);
    else newChat();
  } else if (changed.includes(chat.id) && !running && !document.querySelector("form.edit")) {
    const [leaf, id] = [exchanges.at(-1)?.id, chat.id];
    const records = await store.turns(id).catch(() => []);
    if (chat.id !== id || running) return;
    turns = new Map(records.map((record) => [record.id, new Exchange(record)]));
    // This tab stays on its branch, and follows what is new at its end.
    showBranch(turns.has(leaf) ? endOf(turns.get(leaf)).id : ([...turns.keys()].at(-1) ?? null));
  }
  showChats();
};
