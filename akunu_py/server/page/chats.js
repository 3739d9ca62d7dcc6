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
  $("keeps").checked = store.keeps;
  $("delete-all").hidden = !all.length;
  $("delete-all").textContent = `Delete all ${counted(all.length, "chat")}`;
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
  open.ariaCurrent = true;
  const actions = [
    action("edit", "Rename this chat", () => rename(record, open)),
    action("page", "Export this chat as Markdown", () => exportMarkdown(record)),
    action("braces", "Export this chat as JSON", () => exportJson([record])),
    action("trash", "Delete this chat", () => deleteChats([record], `“${title}” deleted.`)),
  ];
  entry.append(element("div", { className: "actions" }, ...actions));
  return entry;
}

function rename(record, open) {
  const field = element("input", { value: record.title, maxLength: LONGEST_TITLE, ariaLabel: "Title" });
  let ended = false;
  const end = async (save) => {
    // The field loses the focus as it goes.
    if (ended) return;
    ended = true;
    field.replaceWith(open);
    if (save && field.value.trim()) {
      chat.title = field.value.trim();
      chat.named = true;
      await keep([], { fields: ["title", "named"] });
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
  // Before they go: a reply under way keeps what it has, and what is asked meanwhile is another chat's.
  if (shown) newChat();
  const undo = await unlessRefused(() => store.remove(records));
  const putBack = async () => {
    await undo();
    if (shown) {
      leave();
      ({ chat, turns } = shown);
      showBranch(chat.leaf);
      showAddress();
    }
    await showChats();
  };
  if (undo) showNotice(words, putBack);
  await showChats();
}

/* Exports and imports. */

const fileName = (title) => title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "chat";

const exportMarkdown = ({ title }) => download(`${fileName(title)}.md`, "text/markdown", asMarkdown(title, exchanges));

async function exportJson(records) {
  const turnsOf = ({ id }) => (id === chat.id ? [...turns.values()].map((one) => one.record) : store.turns(id));
  const all = records.map(async (record) => exported(record, await turnsOf(record)));
  const chats = await unlessRefused(() => Promise.all(all));
  if (chats) download(`${records.length === 1 ? fileName(records[0].title) : "chats"}.json`, "application/json", asJson(chats));
}

async function importFiles(files) {
  const [added, skipped] = [[], []];
  const known = new Set();
  if (!store.keeps) return showNotice("Nothing is imported: the settings say that no chats are kept.");
  for (const record of await store.chats()) known.add(contentOf(record, await store.turns(record.id)));
  for (const file of files) {
    const failed = (error) => () => {
      throw new Error(error instanceof SyntaxError ? "it is neither JSON nor Markdown of this page" : error.message);
    };
    const makes = await file.text().then(readChats).catch((error) => [failed(error)]);
    for (const [at, make] of makes.entries()) {
      const name = makes.length > 1 ? `chat ${at + 1} of ${file.name}` : file.name;
      try {
        const { chat: found, turns: some } = make();
        const content = contentOf(found, some);
        if (known.has(content)) throw new Error("it is here already");
        await store.put([found], some);
        known.add(content);
        added.push(found);
      } catch (error) {
        skipped.push(`${harmless(name)} (${error.name === "Error" ? error.message : notKept(error)})`);
      }
    }
  }
  if (added.length) await openChat(added.at(-1).id);
  const left = skipped.length ? `, ${number.format(skipped.length)} skipped: ${skipped.slice(0, MOST_TOLD).join(", ")}${skipped.length > MOST_TOLD ? " …" : ""}` : "";
  showNotice(`${counted(added.length, "chat")} imported${left}.`);
}

const MOST_TOLD = 5;

$("search").addEventListener("input", showChats);
$("export-all").addEventListener("click", async () => exportJson(await store.chats()));
$("import-chats").addEventListener("click", () => $("import-files").click());
$("import-files").addEventListener("change", async ({ target }) => {
  await importFiles([...target.files]);
  target.value = "";
});
$("keeps").addEventListener("change", async ({ target }) => {
  store.keeps = target.checked;
  await unlessRefused(() => store.set("keeps", store.keeps));
  if (store.keeps && turns.size) await keep([...turns.values()]);
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
  } else if (changed.includes(chat.id) && !document.querySelector("form.edit")) {
    await unlessRefused(() => catchUp(chat));
  }
  showChats();
};

/* Shows a chat as another tab has kept it. A reply under way stays, with the turns that it follows. */
async function catchUp(home) {
  const [all, records] = await Promise.all([store.chats(), store.turns(home.id)]);
  if (chat !== home) return;
  const { title, named } = all.find(({ id }) => id === home.id) ?? home;
  Object.assign(chat, { title, named });
  const leaf = exchanges.at(-1)?.id;
  const own = running ? exchanges : [];
  const isSame = (one, { content, finish }) => own.includes(one) || (one?.content === content && one.finish === finish);
  const found = records.map((record) => [turns.get(record.id), record]).map(([one, record]) => (isSame(one, record) ? one : new Exchange(record)));
  const gone = own.filter((one) => !found.includes(one));
  turns = new Map([...found, ...gone].sort((one, other) => one.begun - other.begun).map((one) => [one.id, one]));
  if (gone.length) keep(gone, { quietly: true });
  // This tab stays on its branch, and follows what is new at its end.
  if (turns.has(leaf)) showBranch(running ? leaf : endOf(turns.get(leaf)).id);
  else showBranch([...turns.keys()].at(-1) ?? null);
}
