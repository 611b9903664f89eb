// Requests to the server, and its errors.

import { el } from "./dom.js";
import { t } from "./texts.js";

/** An error from the server: message, expected value, hint. */
export class Problem extends Error {
  constructor(error) {
    super(error.message);
    Object.assign(this, { expected: error.expected, hint: error.hint, gone: error.gone === true });
  }
}

export const server = { start: "unmask studio runs/" }; // the command that starts it

export const get = (path, values = {}) => send(`studio/${path}?${new URLSearchParams(values)}`, {});

export const post = (path, body) =>
  send(`studio/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body, (_, value) => value?.toWellFormed?.() ?? value), // a lone surrogate is not valid JSON
  });

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Problem({ message: t("server.gone"), gone: true, hint: server.start });
  }
  const found = await response.json().catch(() => ({}));
  const warning = response.headers.get("x-unmask-warning");
  if (warning) warned.set(found, warning);
  if (response.ok) return found;
  const error = typeof found.error === "object" && found.error ? found.error : { message: found.error };
  throw new Problem({ ...error, message: error.message || t("server.said", { status: response.status }) });
}

const warned = new WeakMap(); // result → warning of the server

/** A note above a result that has a warning; null for others. */
export function warningNote(found) {
  const percent = /^unknown_tokens: (\d+)%/.exec(warned.get(found) ?? "")?.[1];
  return percent ? el("p", { class: "trouble note", role: "status" }, t("unknown.note", { percent })) : null;
}

/** An error, shown instead of a result. */
export function errorBox(problem) {
  if (!(problem instanceof Problem)) throw problem;
  return el(
    "div",
    { class: "trouble", role: "alert" },
    el("p", {}, problem.message),
    problem.expected ? el("p", { class: "faint" }, `${t("problem.expected")} `, problem.expected) : null,
    problem.hint ? el("p", { class: "faint" }, `${t("problem.hint")} `, el("code", {}, problem.hint)) : null,
  );
}

/** Render the result of `work` into `node`, or its error. If called several times for one node, the last call wins. */
export async function renderInto(node, work) {
  const request = (node.request = (node.request ?? 0) + 1);
  node.setAttribute("aria-busy", "true");
  let children;
  try {
    children = [await work()].flat();
  } catch (problem) {
    children = [errorBox(problem)];
  }
  if (request !== node.request) return;
  node.removeAttribute("aria-busy");
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}
