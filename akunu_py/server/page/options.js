"use strict";

/* The settings of a reply. Their fields are those that the server declares; values are kept by
   model. */

let declared = [];

/* Options that are otherwise for programs, which may want a reply as it is. */
const FIRST = ["temperature", "top_p", "max_tokens"];
const PAGE_DEFAULTS = { stop_loops: true };

/* Choices about thinking: the option that a model's template must have for them, and the fields of a
   request. A template with efforts thinks as much as it is told; without them it is on or off. */
const THINKING = {
  off: { words: "Off", heeded: ["thinking"], fields: { enable_thinking: false } },
  on: { words: "On", heeded: ["thinking"], without: "effort", fields: { enable_thinking: true } },
  low: { words: "Low effort", heeded: ["effort"], fields: { reasoning_effort: "low" } },
  medium: { words: "Medium effort", heeded: ["effort"], fields: { reasoning_effort: "medium" } },
  high: { words: "High effort", heeded: ["effort"], fields: { reasoning_effort: "high" } },
};

function showThinking(heeds) {
  const before = $("thinking").value;
  const offered = Object.entries(THINKING).filter(
    ([, { heeded, without }]) => heeded.every((option) => heeds.includes(option)) && !heeds.includes(without),
  );
  const options = offered.map(([value, { words: textContent }]) => element("option", { value, textContent }));
  $("thinking").replaceChildren(element("option", { value: "", textContent: "As the model does by default" }), ...options);
  $("thinking").value = offered.some(([value]) => value === before) ? before : "";
  $("thinking-field").hidden = !offered.length;
}

/* What is typed into the field of an option, by kind, as the value of a request. */
const READ = {
  number: Number,
  count: Number,
  text: (text) => text,
  choice: (text) => text,
  switch: (text) => text === "on",
  // A stop text may have a line break.
  texts: (text) => text.split("\n").filter(Boolean).map((line) => line.replaceAll("\\n", "\n")),
  biases: (text) =>
    Object.fromEntries(
      text.split("\n").filter((line) => line.trim()).map((line) => {
        const match = /^\s*(\d{1,9})\s*=\s*(-?\d+(?:\.\d+)?)\s*$/.exec(line);
        if (!match) throw new Error(`Give lines such as 42=-1.5, not “${line.trim()}”.`);
        return [match[1], Number(match[2])];
      }),
    ),
};

const WRITTEN = { switch: (value) => (value ? "on" : "off"), texts: (value) => value.join(", "), biases: (value) => Object.entries(value).map(([id, bias]) => `${id}=${bias}`).join(", ") };

function fieldOf({ name, kind, least, most, or_zero: orZero, names, words, default: value }) {
  const written = value === null ? "" : String(WRITTEN[kind]?.(value) ?? value);
  let field;
  if (kind === "texts" || kind === "biases") field = element("textarea", { rows: 2 });
  else if (kind === "switch" || kind === "choice") {
    const values = kind === "switch" ? ["on", "off"] : names;
    field = element("select", {}, ...["", ...values].map((one) => element("option", { value: one, textContent: one || `Default: ${written}` })));
  } else if (kind === "text") field = element("input");
  else {
    const isCount = kind === "count";
    field = element("input", { type: "number", min: orZero ? 0 : least, step: isCount ? 1 : "any", inputMode: isCount ? "numeric" : "decimal" });
    // Larger whole numbers are no longer exact in a browser.
    if (typeof most === "number") field.max = Math.min(most, Number.MAX_SAFE_INTEGER);
  }
  field.id = `option-${name}`;
  if (written) field.placeholder = `Default: ${written}`;
  const lines = { texts: "; one a line", biases: "; ID=BIAS, one a line" };
  const hint = element("span", { id: `hint-${name}`, className: "hint", textContent: `${words}${lines[kind] ?? ""}` });
  field.setAttribute("aria-describedby", hint.id);
  const label = element("label", { htmlFor: field.id, textContent: `${name[0].toUpperCase()}${name.slice(1)}`.replaceAll("_", " ") });
  return element("div", {}, label, field, hint);
}

async function showOptions(options) {
  const [id, focused] = [model.id, $("settings").contains(document.activeElement) && document.activeElement.id];
  const same = declared.length && model.optionsOf === id;
  const saved = same ? kept() : ((await store.setting(`model ${id}`).catch(() => null)) ?? {});
  if (model.id !== id) return;
  model.optionsOf = id;
  declared = options.map((one) => ({ ...one, default: PAGE_DEFAULTS[one.name] ?? one.default }));
  const isFirst = ({ name }) => FIRST.includes(name);
  $("first-options").replaceChildren(...declared.filter(isFirst).map(fieldOf));
  $("options").replaceChildren(...declared.filter((one) => !isFirst(one)).map(fieldOf));
  for (const field of fields()) field.value = saved[field.id] ?? "";
  if (!turns.size && !$("system").value) $("system").value = saved.system ?? "";
  if (focused) $(focused)?.focus();
}

/* Fields that are kept by model. */
const fields = () => [...$("settings").querySelectorAll(":is(#first-options, #more-options) :is(input, select, textarea), #thinking")];
const kept = () => Object.fromEntries([["system", $("system").value], ...fields().map(({ id, value }) => [id, value])]);

/* Returns the options of a request, or null where a field has something else in it. */
function settings() {
  const given = { ...(THINKING[$("thinking").value]?.fields ?? {}) };
  const read = (field, name, reader) => {
    field.setCustomValidity("");
    try {
      if (field.value.trim() && field.checkValidity()) given[name] = reader(field.value);
    } catch (error) {
      field.setCustomValidity(error.message);
    }
    if (field.checkValidity()) return true;
    panels.settings.show(true);
    if ($("more-options").contains(field)) $("more-options").open = true;
    field.reportValidity();
    return false;
  };
  const schema = (text) => {
    try {
      const value = JSON.parse(text);
      if (value !== null && typeof value === "object" && !Array.isArray(value)) return value;
    } catch {
      // Told below.
    }
    throw new Error('Give a JSON schema, such as {"type": "object"}.');
  };
  const all = declared.every(({ name, kind }) => read($(`option-${name}`), name, READ[kind]));
  return all && read($("json-schema"), "json_schema", schema) ? given : null;
}

$("settings").addEventListener("change", ({ target }) => {
  if (target.id === "keeps") return;
  target.setCustomValidity?.("");
  unlessRefused(() => store.change(`model ${model.id}`, { [target.id]: target.value }));
});
$("settings").addEventListener("input", ({ target }) => target.setCustomValidity?.(""));
$("reset").addEventListener("click", () => {
  for (const field of fields()) field.value = "";
  unlessRefused(() => store.set(`model ${model.id}`, kept()));
});
