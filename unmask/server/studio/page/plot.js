// Plots with plotly.js, loaded on first use. Texts are escaped, because plotly interprets some markup.

import { el } from "./dom.js";
import { t } from "./texts.js";

let ready = null;

/** The page's CSP forbids style attributes and <style> elements; styles set by script are allowed. */
function load() {
  const set = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (name === "style" && this.style) this.style.cssText = value;
    else set.call(this, name, value);
  };
  const create = document.createElement;
  const allowed = (name) => (name === "style" ? "template" : name); // plotly's style for maps, which are not used here
  document.createElement = (name, ...rest) => create.call(document, allowed(name), ...rest);
  return new Promise((done, fail) => {
    const script = el("script", { src: "studio/plotly.js" });
    script.addEventListener("load", () => done(window.Plotly));
    script.addEventListener("error", () => fail(new Error("plotly.js")));
    document.head.append(script);
  }).finally(() => delete document.createElement);
}

/** Escape markup: "<b>" is shown as it is. */
export const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Draw into `node`, or update it with new data; `traces` and `layout` are plotly's. */
export async function draw(node, traces, layout = {}) {
  ready ??= load();
  // A node that is not on the page yet has no width.
  for (let frame = 0; frame < 60 && !node.isConnected; frame++) await new Promise(requestAnimationFrame);
  let Plotly;
  try {
    Plotly = await ready;
  } catch {
    ready = null;
    node.textContent = t("plot.missing");
    return;
  }
  const ink = color("--ink"),
    faint = color("--faint"),
    line = color("--line");
  const axis = {
    gridcolor: line,
    zeroline: false,
    linecolor: line,
    tickcolor: line,
    tickfont: { color: faint },
    automargin: true,
  };
  const font = { family: getComputedStyle(document.body).fontFamily, color: ink, size: 13 };
  const whole = {
    font,
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    margin: { l: 48, r: 12, t: 32, b: 40 },
    showlegend: false,
    hoverlabel: { bgcolor: color("--card"), bordercolor: line, font: { ...font, color: ink }, align: "left" },
    hovermode: "closest",
    dragmode: false,
    ...layout,
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
    title: layout.title
      ? { text: layout.title, x: 0, xref: "container", xanchor: "left", font: { size: 14, color: ink, weight: 600 } }
      : undefined,
  };
  await Plotly.react(node, traces, whole, { displayModeBar: false, responsive: true, scrollZoom: false });
}
