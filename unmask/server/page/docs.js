// Shows openapi.json: each operation with its fields, an example to change, and a button that sends it. All text by textContent.

const element = (name, { text, ...given } = {}, ...children) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

const spec = await (await fetch("/openapi.json")).json();
const resolve = (schema) => (schema?.$ref ? resolve(spec.components.schemas[schema.$ref.split("/").pop()]) : schema ?? {});

// A value that a schema allows: its example, its default, or the first of its kinds.
function example(given, depth = 0) {
  const schema = resolve(given);
  if (given?.examples) return given.examples[0];
  if (schema.examples) return schema.examples[0];
  if (schema.const !== undefined) return schema.const;
  if (schema.enum) return schema.enum[0];
  if (schema.anyOf) return example(schema.anyOf[0], depth);
  if (depth > 5) return null;
  if (schema.type === "object" || schema.properties) {
    const needed = schema.required ?? [];
    return Object.fromEntries(Object.entries(schema.properties ?? {}).filter(([key]) => needed.includes(key)).map(([key, part]) => [key, example(part, depth + 1)]));
  }
  if (schema.type === "array") return [example(schema.items, depth + 1)];
  return { string: "a text", integer: 1, number: 0.5, boolean: false }[schema.type] ?? null;
}

function kind(given) {
  const schema = resolve(given);
  if (schema.anyOf) return schema.anyOf.map(kind).filter((k) => k !== "null").join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((v) => JSON.stringify(v)).join(", ");
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  return schema.type ?? "anything";
}

function* fields(given, before = "") {
  const schema = resolve(given);
  const needed = schema.required ?? [];
  const parts = Object.entries(schema.properties ?? {}).sort(([a], [b]) => needed.includes(b) - needed.includes(a)); // the order stays else
  for (const [key, part] of parts) {
    const notes = [needed.includes(key) ? "needed" : "", part.description ?? "", part.default != null && typeof part.default !== "object" ? `default ${JSON.stringify(part.default)}` : ""];
    yield [before + key, kind(part), notes.filter(Boolean).join(" · ")];
    if (resolve(part).properties) yield* fields(part, `${before}${key}.`);
  }
}

function operation(path, verb, about) {
  const inside = element("div", { class: "inside" });
  const body = about.requestBody?.content?.["application/json"]?.schema;
  const inputs = {};
  for (const parameter of about.parameters ?? []) {
    const id = `${about.operationId}-${parameter.name}`;
    const choices = resolve(parameter.schema).enum ?? parameter.schema?.enum;
    inputs[parameter.name] = choices ? element("select", { id }, ...choices.map((c) => element("option", { text: c, value: c }))) : element("input", { id });
    inside.append(element("label", { for: id, text: parameter.name }), inputs[parameter.name]);
  }
  let text;
  if (body) {
    const rows = [...fields(body)].map((row) => element("tr", {}, ...row.map((cell) => element("td", { text: cell }))));
    const id = `${about.operationId}-body`;
    text = element("textarea", { id, rows: 6, spellcheck: "false" });
    text.value = JSON.stringify(example(body), null, 1);
    inside.append(element("table", {}, ...rows), element("label", { for: id, text: "body" }), text);
  }
  const send = element("button", { type: "button", text: "Send" });
  const out = element("pre", { hidden: "" });
  send.addEventListener("click", async () => {
    const address = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(inputs[name].value));
    const answer = await fetch(address, body ? { method: verb.toUpperCase(), headers: { "content-type": "application/json" }, body: text.value } : { method: verb.toUpperCase() });
    const raw = await answer.text();
    let shown = raw;
    try { shown = JSON.stringify(JSON.parse(raw), null, 1); } catch { /* not JSON: as it is */ }
    out.textContent = `${answer.status}\n${shown.slice(0, 20000)}`;
    out.className = answer.ok ? "" : "bad";
    out.hidden = false;
  });
  inside.append(send, out);
  const title = element("summary", {}, element("span", { class: "verb", text: verb.toUpperCase() }), element("code", { text: path }), element("span", { class: "what", text: about.summary ?? "" }));
  return element("details", {}, title, inside);
}

document.getElementById("about").textContent = `${spec.info.description} Version ${spec.info.version}.`;
const groups = new Map();
for (const [path, verbs] of Object.entries(spec.paths)) {
  for (const [verb, about] of Object.entries(verbs)) {
    const tag = about.tags?.[0] ?? "other";
    groups.set(tag, [...(groups.get(tag) ?? []), operation(path, verb, about)]);
  }
}
const main = document.getElementById("operations");
for (const [tag, found] of groups) main.append(element("h2", { text: tag }), ...found);
