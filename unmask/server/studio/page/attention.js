// Attention as lines between tokens, with a thumbnail per head to choose from.

import { arrows, el, readable, select, svg } from "./dom.js";
import { t } from "./texts.js";

const LINE = 26; // pixels per token
const LEFT = 150,
  RIGHT = 370,
  WIDTH = 520;
const MIN_WEIGHT = 0.02; // smaller weights are not drawn

const now = { layer: 0, head: 0 };

/** found: {tokens: [{token, …}], shape: [layers, heads, T, T], shades: base64 of a byte per weight} */
export function attention(found) {
  const [layers, heads, size] = found.shape;
  const shades = Uint8Array.from(atob(found.shades), (letter) => letter.charCodeAt(0));
  const names = found.tokens.map((token) => readable(token.token));
  const weight = (layer, head, from, to) => shades[((layer * heads + head) * size + from) * size + to] / 255;
  Object.assign(now, { layer: Math.min(now.layer, layers - 1), head: Math.min(now.head, heads - 1) });
  const picture = el("div", { class: "lines" });
  const grid = el("div", { class: "heads", role: "group", "aria-label": t("look.heads"), style: { "--heads": heads } });
  const pick = (key, count) =>
    select(
      Array.from({ length: count }, (_, n) => [n, n + 1]),
      now[key],
      (value) => choose({ ...now, [key]: Number(value) }),
      { id: key },
    );
  const layer = pick("layer", layers),
    head = pick("head", heads);

  function choose(to) {
    Object.assign(now, to);
    layer.value = now.layer;
    head.value = now.head;
    grid.querySelectorAll("button").forEach((button, n) => {
      const on = n === now.layer * heads + now.head;
      button.setAttribute("aria-pressed", on);
      button.tabIndex = on ? 0 : -1;
    });
    picture.replaceChildren(lines(names, (from, to) => weight(now.layer, now.head, from, to)));
  }

  for (let l = 0; l < layers; l++) {
    for (let h = 0; h < heads; h++) {
      const label = t("look.head", { layer: l + 1, head: h + 1 });
      grid.append(
        el(
          "button",
          {
            type: "button",
            title: label,
            "aria-label": label,
            on: { click: () => choose({ layer: l, head: h }), focus: () => choose({ layer: l, head: h }) },
          },
          thumbnail(size, (from, to) => weight(l, h, from, to)),
        ),
      );
    }
  }
  choose(now);
  return el(
    "div",
    { class: "attention" },
    el(
      "div",
      { class: "picks" },
      el(
        "div",
        { class: "options" },
        el("label", { class: "field" }, el("span", { class: "label" }, t("look.layer")), layer),
        el("label", { class: "field" }, el("span", { class: "label" }, t("look.headname")), head),
      ),
      arrows(grid, "button", heads),
      el("p", { class: "faint small" }, t("look.grid")),
    ),
    picture,
  );
}

/** Thumbnail of a head: rows are queries, columns are keys. */
function thumbnail(size, weight) {
  const canvas = el("canvas", { width: size, height: size, "aria-hidden": "true" });
  const drawing = canvas.getContext("2d");
  const image = drawing.createImageData(size, size);
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--shade").trim().split(" ").map(Number);
  const weights = Array.from({ length: size * size }, (_, n) => weight(Math.floor(n / size), n % size));
  const most = Math.max(...weights, 1e-9);
  for (let n = 0; n < size * size; n++) {
    image.data.set(dark, 4 * n);
    image.data[4 * n + 3] = Math.round((255 * weights[n]) / most);
  }
  drawing.putImageData(image, 0, 0);
  return canvas;
}

function lines(names, weight) {
  const y = (n) => LINE * (n + 0.5) + 4;
  const paths = svg("g", {});
  for (let from = 0; from < names.length; from++) {
    for (let to = 0; to < names.length; to++) {
      const value = weight(from, to);
      if (value < MIN_WEIGHT) continue;
      const middle = (LEFT + RIGHT) / 2;
      const path = `M${LEFT + 8} ${y(from)} C${middle} ${y(from)} ${middle} ${y(to)} ${RIGHT - 8} ${y(to)}`;
      paths.append(
        svg("path", {
          d: path,
          class: "line",
          "data-from": from,
          "data-to": to,
          "stroke-opacity": value.toFixed(3),
          style: { "--lit": Math.sqrt(value).toFixed(3) },
        }),
      );
    }
  }
  const figures = names.map((_, n) => svg("text", { x: WIDTH - 4, y: y(n), class: "weight" }));
  const words = (side, x) =>
    names.map((name, n) =>
      svg(
        "text",
        {
          x,
          y: y(n),
          class: `token ${side}`,
          tabindex: side === "from" ? 0 : null,
          "aria-label": side === "from" ? spoken(names, weight, n) : null,
          on: Object.fromEntries([
            ["pointerenter", () => light(side, n)],
            ["focus", () => light(side, n)],
            ["pointerleave", dim],
            ["blur", dim],
          ]),
        },
        short(name),
      ),
    );
  const left = words("from", LEFT),
    right = words("to", RIGHT);

  function light(side, n) {
    node.classList.add("lit");
    for (const line of paths.children) line.classList.toggle("on", line.dataset[side] === String(n));
    left.forEach((word, i) => word.classList.toggle("on", side === "from" ? i === n : weight(i, n) >= MIN_WEIGHT));
    right.forEach((word, i) => word.classList.toggle("on", side === "to" ? i === n : weight(n, i) >= MIN_WEIGHT));
    figures.forEach(
      (figure, i) =>
        (figure.textContent = side === "from" && weight(n, i) >= MIN_WEIGHT ? `${Math.round(100 * weight(n, i))}%` : ""),
    );
  }

  function dim() {
    node.classList.remove("lit");
    figures.forEach((figure) => (figure.textContent = ""));
  }

  const node = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${LINE * names.length + 8}`, role: "group", "aria-label": t("look.lines") },
    paths,
    ...left,
    ...right,
    ...figures,
  );
  return arrows(node, ".token.from");
}

/** For screen readers: the tokens with the largest weights. */
function spoken(names, weight, from) {
  const most = names
    .map((name, to) => [weight(from, to), name])
    .sort((a, b) => b[0] - a[0])
    .slice(0, 3);
  return `${names[from]}: ${most.map(([value, name]) => `${name} ${Math.round(100 * value)}%`).join(", ")}`;
}

const short = (name) => ([...name].length > 16 ? `${[...name].slice(0, 15).join("")}…` : name);
