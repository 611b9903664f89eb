// The frame of the page: views, models, language, light and dark.

import { get, trouble } from "./api.js";
import { el, select } from "./dom.js";
import { chosen, keep, kept } from "./memory.js";
import { language, speak, t } from "./texts.js";
import * as fill from "./fill.js";
import * as look from "./look.js";
import * as meaning from "./meaning.js";
import * as task from "./task.js";
import * as runs from "./runs.js";

const VIEWS = { fill, look, meaning, task, runs };
const BESIDE = ["fill", "task"]; // views with a place for a second model
const THEMES = ["auto", "light", "dark"];

let models = [];
let leave = () => {};

const named = (name) => models.find((model) => model.name === name);

/** The view that the address names (#fill), and what comes after it (#runs/pretrain/bert-1). */
function place() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  if (name in VIEWS) return { name, rest: rest.join("/") };
  const model = named(chosen.model); // a visit begins with what it can do
  const first = !model ? "runs" : model.methods.includes("fill") ? "fill" : "task";
  history.replaceState(null, "", `#${first}`);
  return { name: first, rest: "" };
}

function show() {
  const { name, rest } = place();
  leave();
  document.documentElement.lang = language() === "zh" ? "zh-CN" : "en";
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
  const asked = [named(chosen.model), BESIDE.includes(name) ? named(chosen.second) : undefined].filter(Boolean);
  leave = VIEWS[name].show(node, asked, rest) ?? (() => {});
}

function header(current) {
  const links = Object.keys(VIEWS).map((name) =>
    el("a", { href: `#${name}`, "aria-current": name === current ? "page" : null }, t(`nav.${name}`)),
  );
  return [
    el("a", { class: "brand", href: "#", "aria-label": "unmask" }, "un", el("b", {}, "mask")),
    el("nav", { "aria-label": t("nav.label") }, ...links),
    el("div", { class: "tools" }, ...(current === "runs" ? [] : pickers(current)), ...switches()),
  ];
}

function pickers(current) {
  if (!models.length) return [];
  const options = models.map((model) => [model.name, model.name]);
  const choose = (key) => (value) => {
    chosen[key] = value;
    keep(key, value);
    show();
  };
  const first = select(options, chosen.model, choose("model"), { "aria-label": t("models.first"), id: "model" });
  if (!BESIDE.includes(current)) return [first];
  const none = [["", t("models.alone")], ...options];
  return [first, select(none, chosen.second, choose("second"), { "aria-label": t("models.second"), id: "second" })];
}

function switches() {
  const theme = kept("theme", "auto");
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  const other = language() === "en" ? "zh" : "en";
  const again = (id) => {
    show();
    document.getElementById(id)?.focus();
  };
  return [
    el(
      "button",
      {
        class: "quiet",
        id: "language",
        lang: other === "zh" ? "zh-CN" : "en",
        "aria-label": t("switch.language"),
        on: { click: () => (speak(other), again("language")) },
      },
      other === "zh" ? "中文" : "EN",
    ),
    el(
      "button",
      {
        class: "quiet",
        id: "theme",
        title: t(`theme.${theme}`),
        "aria-label": t("switch.theme", { now: t(`theme.${theme}`) }),
        on: { click: () => (keep("theme", next), dress(), again("theme")) },
      },
      { auto: "◐", light: "○", dark: "●" }[theme],
    ),
  ];
}

function dress() {
  const theme = kept("theme", "auto");
  if (theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = theme;
}

async function begin() {
  dress();
  try {
    models = await get("models");
  } catch (problem) {
    document.getElementById("view").replaceChildren(trouble(problem));
    return;
  }
  chosen.model = named(kept("model", ""))?.name ?? models[0]?.name ?? "";
  chosen.second = named(kept("second", ""))?.name ?? "";
  addEventListener("hashchange", () => {
    if (location.hash !== "#view") show(); // the link that skips to the content leads nowhere else
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}

begin();
