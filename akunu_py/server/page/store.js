"use strict";

/* Chats and settings, kept in this browser's IndexedDB and nowhere else. A chat is one record, and so
   is each turn: a question with its reply, which knows the turn before it. Tabs that write to one
   chat add turns, and write those fields of the chat that they change. */

const KEPT = { chats: { keyPath: "id" }, turns: { keyPath: "id" }, settings: { keyPath: "name" } };
const tabs = new BroadcastChannel("akunu");

class Store {
  /* Whether chats are kept. Without, the only thing kept is this choice. */
  keeps = true;
  opened = null;

  open() {
    this.opened ??= new Promise((resolve, reject) => {
      const asked = indexedDB.open("akunu", 1);
      asked.onupgradeneeded = () => {
        for (const [name, options] of Object.entries(KEPT)) asked.result.createObjectStore(name, options);
        asked.transaction.objectStore("turns").createIndex("chat", "chat");
      };
      asked.onsuccess = () => {
        // A later version of the page may change the stores; this one opens them again when asked.
        asked.result.onversionchange = () => {
          asked.result.close();
          this.opened = null;
        };
        resolve(asked.result);
      };
      asked.onerror = () => reject(asked.error);
    });
    return this.opened;
  }

  /* Runs `work` on stores by name, in one transaction; resolves to the result of what it returns. */
  async run(mode, work) {
    const database = await this.open();
    return new Promise((resolve, reject) => {
      const names = Object.keys(KEPT);
      const transaction = database.transaction(names, mode);
      const asked = work(...names.map((name) => transaction.objectStore(name)));
      transaction.oncomplete = () => resolve(asked?.result);
      transaction.onabort = transaction.onerror = () => reject(transaction.error ?? new Error("it was aborted"));
    });
  }

  async chats() {
    const all = await this.run("readonly", (chats) => chats.getAll());
    return all.sort((one, other) => other.changed - one.changed);
  }

  /* Turns of a chat, or of all, oldest first. */
  async turns(chat) {
    const all = await this.run("readonly", (_, turns) => (chat ? turns.index("chat").getAll(chat) : turns.getAll()));
    return all.sort((one, other) => one.begun - other.begun);
  }

  /* Ids of chats that have all words of a text, in title, questions, files or replies. */
  async find(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const texts = new Map((await this.chats()).map(({ id, title }) => [id, [title]]));
    for (const { chat, question, files, content } of await this.turns()) {
      texts.get(chat)?.push(question, content, ...files.flatMap((file) => [file.name, file.text]));
    }
    const has = (all) => words.every((word) => all.some((one) => one.toLowerCase().includes(word)));
    return new Set([...texts].filter(([, all]) => has(all)).map(([id]) => id));
  }

  async put(chats, turns, { quietly = false, fields = ["leaf", "system", "changed"] } = {}) {
    if (!this.keeps) return;
    await this.run("readwrite", (chatStore, turnStore) => {
      for (const one of chats) {
        const found = chatStore.get(one.id);
        const own = fields.map((name) => [name, one[name]]);
        found.onsuccess = () => chatStore.put({ ...one, ...found.result, ...Object.fromEntries(own) });
      }
      for (const one of turns) turnStore.put(one);
    });
    if (!quietly) tabs.postMessage({ changed: chats.map(({ id }) => id) });
  }

  /* Removes chats with their turns, or single turns; returns what undoes it. */
  async remove(chats, turns = []) {
    const inside = (await Promise.all(chats.map(({ id }) => this.turns(id)))).flat();
    await this.run("readwrite", (chatStore, turnStore) => {
      for (const { id } of chats) chatStore.delete(id);
      for (const { id } of [...inside, ...turns]) turnStore.delete(id);
    });
    tabs.postMessage({ changed: turns.map(({ chat }) => chat), removed: chats.map(({ id }) => id) });
    return () => this.put(chats, [...inside, ...turns]);
  }

  async setting(name) {
    return (await this.run("readonly", (_, __, settings) => settings.get(name)))?.value;
  }

  async set(name, value) {
    if (!this.keeps && name !== "keeps") return;
    await this.run("readwrite", (_, __, settings) => settings.put({ name, value }));
  }

  /* Sets some fields of a setting that has several. */
  async change(name, fields) {
    if (!this.keeps) return;
    await this.run("readwrite", (_, __, settings) => {
      const found = settings.get(name);
      found.onsuccess = () => settings.put({ name, value: { ...found.result?.value, ...fields } });
    });
  }
}

const store = new Store();

/* Records. */

const LONGEST_TITLE = 80;

/* randomUUID is for pages of this machine and encrypted ones alone. */
const newId = () => [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

const newChatRecord = () => ({ id: newId(), title: "", named: false, system: "", leaf: null, changed: Date.now() });

/* Marks of Markdown: those that begin a line, and those around words. */
const BEGINNINGS = /^\s*(?:>\s*|(?:#{1,6}|[*+-]|\d+[.)]|\[[ x]\])\s+)+/i;
const AROUND = /`+|\*\*+|~~|\||(?<![\w*])\*(?=\S)|(?<=\S)\*(?![\w*])/g;

const plain = (line) => harmless(line).replace(BEGINNINGS, "").replace(AROUND, "").replace(/\s+/g, " ").trim();

/* A chat is called by the first words of its first question. */
function titleOf(question, files) {
  const isSaid = (line) => /\w|[^\x00-\x7f]/.test(plain(line)) && !/^\s*(`{3}|~{3})/.test(line);
  const words = plain(question.split("\n").find(isSaid) ?? files[0]?.name ?? "Chat");
  return words.length > LONGEST_TITLE ? `${words.slice(0, LONGEST_TITLE - 1)}…` : words;
}
