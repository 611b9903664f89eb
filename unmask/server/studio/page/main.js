// The frame of the page: navigation, models, language, theme.

import { get, errorBox } from "./api.js";
import { el, select } from "./dom.js";
import { applyTheme, brand, setDocumentLanguage, switches } from "./frame.js";
import { chosen, store, stored } from "./memory.js";
import { t } from "./texts.js";
import * as fill from "./fill.js";
import * as look from "./look.js";
import * as meaning from "./meaning.js";
import * as task from "./task.js";
import * as runs from "./runs.js";

const VIEWS = { fill, look, meaning, task, runs };
const TWO_MODEL_VIEWS = ["fill", "task"]; // views that can show two models

let models = [];
let leave = () => {};

const named = (name) => models.find((model) => model.name === name);

/** The view in the URL (#fill) and the rest of the fragment (#runs/pretrain/bert-1). */
function currentView() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  if (name in VIEWS) return { name, rest: rest.join("/") };
  const model = named(chosen.model); // the default view depends on the model
  const first = !model ? "runs" : model.methods.includes("fill") ? "fill" : "task";
  history.replaceState(null, "", `#${first}`);
  return { name: first, rest: "" };
}

function show() {
  const { name, rest } = currentView();
  leave();
  setDocumentLanguage();
  document.title = `${t(`nav.${name}`)} · unmask`;
  document.getElementById("skip").textContent = t("skip");
  document.getElementById("top").replaceChildren(...header(name));
  const view = document.getElementById("view");
  const node = el(
    "div",
    { class: `view ${name}` },
    el("h1", {}, t(`nav.${name}`)),
    el("p", { class: "lead" }, t(`${name}.lead`)),
  );
  view.replaceChildren(node);
  if (name !== "runs" && !models.length) {
    leave = () => {};
    node.append(
      el(
        "div",
        { class: "trouble" },
        el("p", {}, t("models.none")),
        el("p", {}, el("code", {}, "unmask studio runs/ MODEL")),
      ),
    );
    return;
  }
  const asked = [named(chosen.model), TWO_MODEL_VIEWS.includes(name) ? named(chosen.second) : undefined].filter(Boolean);
  leave = VIEWS[name].show(node, asked, rest) ?? (() => {});
}

function header(current) {
  const links = Object.keys(VIEWS).map((name) =>
    el("a", { href: `#${name}`, "aria-current": name === current ? "page" : null }, t(`nav.${name}`)),
  );
  return [
    brand(),
    el("nav", { "aria-label": t("nav.label") }, ...links),
    el("div", { class: "tools" }, ...(current === "runs" ? [] : pickers(current)), ...switches(show)),
  ];
}

function pickers(current) {
  if (!models.length) return [];
  const options = models.map((model) => [model.name, model.name]);
  const choose = (key) => (value) => {
    chosen[key] = value;
    store(key, value);
    show();
  };
  const first = select(options, chosen.model, choose("model"), { "aria-label": t("models.first"), id: "model" });
  if (!TWO_MODEL_VIEWS.includes(current)) return [first];
  const none = [["", t("models.alone")], ...options];
  return [first, select(none, chosen.second, choose("second"), { "aria-label": t("models.second"), id: "second" })];
}

async function start() {
  applyTheme();
  try {
    models = await get("models");
  } catch (problem) {
    document.getElementById("view").replaceChildren(errorBox(problem));
    return;
  }
  chosen.model = named(stored("model", ""))?.name ?? models[0]?.name ?? "";
  chosen.second = named(stored("second", ""))?.name ?? "";
  addEventListener("hashchange", () => {
    if (location.hash !== "#view") show(); // the skip link is not a view
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}

start();
