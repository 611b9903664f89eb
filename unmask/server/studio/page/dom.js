// Elements from values. Every text becomes a text node, never markup.

/** el("button", { class: "quiet", on: { click } }, "text", child, …): null children are skipped. */
export function el(name, props = {}, ...children) {
  return fill(document.createElement(name), props, children);
}

export function svg(name, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), props, children);
}

function fill(node, props, children) {
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (key === "style") for (const [name, text] of Object.entries(value)) node.style.setProperty(name, text);
    else if (key === "value") node.value = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

/** A label above its field, with an optional note. */
export function field(label, input, note = null) {
  return el("label", { class: "field" }, el("span", { class: "label" }, label, note ? el("i", {}, note) : null), input);
}

/** options: [[value, text], …] */
export function select(options, value, change, props = {}) {
  const node = el(
    "select",
    { ...props, on: { change: () => change(node.value) } },
    ...options.map(([key, text]) => el("option", { value: key }, text)),
  );
  node.value = String(value);
  return node;
}

/** A text area that grows with its text; Ctrl+Enter sends its form. */
export function area(value, props = {}) {
  const node = el("textarea", { rows: 2, spellcheck: "false", ...props, value });
  const grow = () => {
    node.style.height = "auto";
    node.style.height = `${Math.min(node.scrollHeight + 2, 420)}px`;
  };
  node.addEventListener("input", grow);
  node.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) node.form?.requestSubmit();
  });
  requestAnimationFrame(grow);
  return node;
}

/** Up and down (or left and right), Home and End move the focus among the nodes that `find` selects in `list`. */
export function arrows(list, find = "button", step = 1) {
  list.addEventListener("keydown", (event) => {
    const all = [...list.querySelectorAll(find)];
    const at = all.indexOf(document.activeElement);
    const moves = {
      ArrowDown: step,
      ArrowUp: -step,
      ArrowRight: 1,
      ArrowLeft: -1,
      Home: -at,
      End: all.length - 1 - at,
    };
    if (at < 0 || !(event.key in moves)) return;
    event.preventDefault();
    all[Math.min(all.length - 1, Math.max(0, at + moves[event.key]))].focus();
  });
  return list;
}

/** A bar for a value from 0 to 1. */
export function bar(fraction, kind = "") {
  const width = `${(100 * Math.min(1, Math.max(0, fraction))).toFixed(2)}%`;
  return el("span", { class: `bar ${kind}`, "aria-hidden": "true" }, el("span", { style: { width } }));
}

export const percent = (p) => (p > 0 && p < 0.0005 ? "<0.1%" : `${(100 * p).toFixed(1)}%`);

/** A token without surrounding spaces; a space alone is made visible. */
export const readable = (token) => token.trim() || "␣";

/** `text` with [start, end) ranges marked: mark(part, range) makes the node. Ranges are sorted and do not overlap. */
export function marked(text, ranges, mark) {
  const letters = [...text]; // the server counts characters, not UTF-16 units
  const out = [];
  let done = 0;
  for (const range of ranges) {
    if (range.start < done || range.end <= range.start) continue;
    out.push(letters.slice(done, range.start).join(""), mark(letters.slice(range.start, range.end).join(""), range));
    done = range.end;
  }
  out.push(letters.slice(done).join(""));
  return out;
}
