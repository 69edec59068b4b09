// Pictures and bars of a look inside, and of what a world model imagines.

import { el, number } from "./dom.js";
import { Chart } from "./chart.js";

const src = (data) => `data:image/png;base64,${data}`;

function picture(data, title, width = 180) {
  const image = el("img", { class: "picture", src: src(data), alt: title, title });
  image.style.width = `${width}px`;
  return el("figure", {}, image, el("figcaption", { class: "note" }, title));
}

function bars(values, labels, title) {
  const most = Math.max(...values, 1e-12);
  return el("div", {}, el("h3", {}, title), el("div", { class: "bars" }, values.flatMap((value, i) => {
    const fill = el("div", { class: "fill" });
    fill.style.transform = `scaleX(${value / most})`;
    return [el("span", { class: "label" }, labels[i] ?? String(i)), el("div", { class: "track", "aria-hidden": "true" }, fill), el("span", { class: "value" }, number(value))];
  })));
}

export function drawInside(found, episode) {
  const labels = episode.meta.observation.labels.length === found.labels.length ? episode.meta.observation.labels : found.labels;
  const parts = [el("p", { class: "note" }, `Step ${found.t}.`)];
  for (const [name, title] of [["gradient", "Gradient × input of the chosen action"], ["occlusion", `Occlusion: change of ${found.target} when it is covered`]]) {
    if (found[name]?.length) parts.push(bars(found[name].slice(0, 64), labels, title));
    if (found[`${name}_map`]?.length) parts.push(el("div", {}, el("h3", {}, title), el("div", { class: "frame" }, found[`${name}_map`].map((data) => picture(data, title, 240)))));
  }
  if (found.cam) parts.push(el("h3", {}, "GradCAM of the last convolution"), el("div", { class: "frame" }, picture(found.cam.picture, found.cam.name, 240)));
  if (found.without_gradient) parts.push(el("p", { class: "note" }, found.without_gradient));
  if (found.filters.length) parts.push(el("h3", {}, "Filters of convolutions, mean over their inputs"), el("div", { class: "frame" }, found.filters.map((one) => picture(one.picture, one.name))));
  if (found.maps.length) parts.push(el("h3", {}, "Activations at this step"), el("div", { class: "frame" }, found.maps.map((one) => picture(one.picture, one.name, 240))));
  if (found.strongest.length) parts.push(el("h3", {}, "What excites each channel most over the episode: the pixels that it sees there"), el("div", { class: "frame" }, found.strongest.map((one) => picture(one.picture, one.name, 240))));
  if (found.units.length) {
    parts.push(el("h3", {}, "Units that never change over the episode"), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Units by layer" }, el("table", {}, el("thead", {}, el("tr", {}, ["layer", "units", "dead", "mean activation"].map((title, i) => el("th", { scope: "col", class: i ? "n" : null }, title)))),
      el("tbody", {}, found.units.map((one) => el("tr", {}, el("td", {}, one.name), el("td", { class: "n" }, number(one.units)), el("td", { class: `n${one.dead ? " bad" : ""}` }, number(one.dead)), el("td", { class: "n" }, number(one.mean))))))));
  }
  return parts;
}

export function drawDream(found) {
  if (found.why) return [el("p", { class: "note" }, found.why)];
  const rows = { real: "what came", reconstructed: "reconstructed", predicted: "imagined" };
  const parts = [el("p", { class: "note" }, `From step ${found.from} on; the first column is the step itself, the others are imagined from it by the actions alone.`)];
  for (const part of found.parts) {
    if (part.image) {
      parts.push(el("h3", {}, part.name), ...Object.entries(rows).map(([key, title]) => el("div", { class: "strip", tabindex: "0", role: "group", "aria-label": title }, el("span", { class: "who" }, title), part[key].map((data, i) => el("img", { class: "picture", src: src(data), alt: `${title}, ${i} steps ahead` })))));
    } else {
      const x = part.real.map((_, i) => i);
      parts.push(el("h3", {}, part.name), el("div", { class: "columns" }, part.labels.map((label, k) => new Chart(label, x, Object.entries(rows).map(([key, title]) => ({ label: title, values: part[key].map((row) => row[k]) })), { xlabel: "steps ahead" }).root)));
    }
  }
  const lines = Object.entries(found.lines).map(([name, line]) => new Chart(name, line.real.map((_, i) => i), Object.entries(rows).map(([key, title]) => ({ label: title, values: line[key] })), { xlabel: "steps ahead" }).root);
  return [...parts, el("div", { class: "columns" }, lines)];
}
