// Everything that is shown of an episode at one step. `show(t)` only changes what is there: it builds nothing.

import { csv, download, el, number } from "./dom.js";
import { Chart } from "./chart.js";
import { Screen } from "./pictures.js";

const NUMBERS = [
  ["reward", "reward"], ["total", "return so far"], ["value", "value"], ["to_go", "return to go"], ["advantage", "advantage"],
  ["gae", "advantage (GAE)"], ["td_error", "TD error"], ["entropy", "entropy"], ["log_prob", "log probability"], ["memory", "memory norm"],
];
const ROWS = 15;

// Where an episode has something to see: names of buttons -> where they lead from step t.
export function jumps(episode) {
  const rewards = episode.column("reward").data;
  const extreme = (better) => () => {
    let best = 0;
    for (let t = 1; t < episode.steps; t += 1) if (better(rewards[t], rewards[best])) best = t;
    return best;
  };
  const next = (t) => {
    for (let k = t + 1; k < episode.steps; k += 1) if (rewards[k] !== 0) return k;
    return t;
  };
  return { "Best reward": extreme((a, b) => a > b), "Worst reward": extreme((a, b) => a < b), "Next reward": next };
}

class Bars {
  // One bar per name; `low` and `high` are the ends of the scale.
  constructor(names, low, high, label) {
    [this.low, this.high] = [low, high];
    this.rows = names.map((name) => {
      const bar = el("div", { class: "fill" });
      const text = el("span", { class: "label" }, name);
      const value = el("span", { class: "value" });
      return { bar, text, value, cells: [text, el("div", { class: "track", "aria-hidden": "true" }, bar), value] };
    });
    this.root = el("div", { class: "bars", role: "group", "aria-label": label }, this.rows.flatMap((row) => row.cells));
  }

  show(values, chosen = -1) {
    const [low, span] = [Math.min(this.low, 0), Math.max(this.high, 0) - Math.min(this.low, 0) || 1];
    const zero = -low / span;
    this.rows.forEach((row, i) => {
      const part = Math.min(Math.max((values[i] - low) / span, 0), 1) || 0;
      row.bar.style.transform = `translateX(${Math.min(part, zero) * 100}%) scaleX(${Math.abs(part - zero)})`;
      row.value.textContent = number(values[i]);
      row.text.classList.toggle("chosen", i === chosen);
    });
  }
}

function spread(data) {
  let [low, high] = [Infinity, -Infinity];
  for (const x of data) {
    if (x < low) low = x;
    if (x > high) high = x;
  }
  return Number.isFinite(low) ? [low, high] : [0, 1];
}

export class Panels {
  constructor(episode, { go = null, brief = false } = {}) {
    this.episode = episode;
    this.go = go ?? (() => {});
    this.updates = [];
    this.charts = [];
    this.frame = this.buildFrame();
    this.decision = this.buildDecision();
    this.observation = this.buildObservation();
    this.plots = this.buildCharts(brief);
    this.attention = this.buildAttention();
    this.table = brief ? null : this.buildTable();
  }

  show(t) {
    this.t = t;
    for (const update of this.updates) update(t);
    for (const chart of this.charts) chart.mark(Math.min(t, this.episode.steps - 1));
  }

  close() {
    for (const chart of this.charts) chart.close();
  }

  buildFrame() {
    const { episode } = this;
    const figures = [];
    const screen = (pictures, place, title) => {
      const canvas = el("canvas", { class: "picture", role: "img", "aria-label": title, width: 1, height: 1 });
      const drawn = new Screen(canvas, pictures);
      this.updates.push((t) => drawn.show(place(t)));
      figures.push(el("figure", {}, canvas, el("figcaption", {}, title)));
    };
    if (episode.frames) screen(episode.frames, (t) => episode.meta.frames.before[t], "environment");
    if (episode.seen) {
      const channels = episode.meta.observation.channels.reduce((a, b) => a + b, 0);
      screen(episode.seen, (t) => Math.min(t, episode.steps - 1), `what the policy sees, ${channels} channels`);
    }
    if (!figures.length) figures.push(el("p", { class: "note" }, "This environment draws no pictures; its numbers are beside."));
    return el("div", { class: "frame" }, figures);
  }

  buildDecision() {
    const { episode } = this;
    const action = el("strong", { class: "action" });
    const parts = [el("p", {}, "action ", action)];
    this.updates.push((t) => { action.textContent = episode.action(t); });
    const labels = (width) => (episode.meta.action.labels.length === width ? episode.meta.action.labels : [...Array(width).keys()].map((i) => `action ${i}`));
    const bars = (name, title, low, high) => {
      if (!episode.has(name)) return;
      const { data, width } = episode.column(name);
      if (width > 64) return;
      const made = new Bars(labels(width), low ?? spread(data)[0], high ?? spread(data)[1], title);
      parts.push(el("h3", { class: "note" }, title), made.root);
      const single = episode.column("action").width === 1;
      this.updates.push((t) => made.show(t < episode.steps ? episode.row(name, t) : [], single ? episode.at("action", t) : -1));
    };
    bars("probabilities", "probabilities", 0, 1);
    bars("q", "Q-values");
    bars("mean", "mean of the Gaussian");
    bars("std", "deviation of the Gaussian", 0);
    const facts = NUMBERS.filter(([name]) => episode.has(name)).map(([name, title]) => {
      const value = el("dd", { "data-number": name });
      this.updates.push((t) => { value.textContent = number(episode.at(name, t)); });
      return [el("dt", {}, title), value];
    });
    parts.push(el("dl", { class: "facts" }, facts));
    return el("section", { class: "card" }, el("h2", {}, "Decision"), parts);
  }

  buildObservation() {
    const { episode } = this;
    const parts = [];
    const { labels } = episode.meta.observation;
    for (const [name, title] of [["obs", "Observation"], ["normalised", "Normalised, as the network reads it"]]) {
      if (!episode.has(name) || !labels.length) continue;
      const [low, high] = spread(episode.column(name).data);
      const made = new Bars(labels, low, high, title);
      parts.push(el("h2", {}, title), made.root);
      this.updates.push((t) => made.show(episode.row(name, Math.min(t, episode.steps - 1))));
    }
    const told = Object.entries(episode.meta.info);
    if (told.length) {
      const facts = told.map(([key, values]) => {
        const value = el("dd", {});
        this.updates.push((t) => {
          const now = values[Math.min(t, episode.steps - 1)];
          value.textContent = typeof now === "number" ? number(now) : Array.isArray(now) ? now.map((x) => number(x)).join(", ") : String(now ?? "–");
        });
        return [el("dt", {}, key), value];
      });
      parts.push(el("h2", {}, "Info of the environment"), el("dl", { class: "facts" }, facts));
    }
    return parts.length ? el("section", { class: "card" }, parts) : null;
  }

  buildCharts(brief) {
    const { episode } = this;
    const x = [...Array(episode.steps).keys()];
    const values = (name) => Array.from(episode.column(name).data, (v) => (Number.isFinite(v) ? v : null));
    const add = (title, names) => {
      const lines = names.filter(([name]) => episode.has(name)).map(([name, label]) => ({ label, values: values(name) }));
      if (lines.length) this.charts.push(new Chart(title, x, lines, { onpick: (_, i) => this.go(i) }));
    };
    const several = (title, name, labels) => {
      if (!episode.has(name) || episode.column(name).width > 8) return;
      const { data, width } = episode.column(name);
      const lines = [...Array(width).keys()].map((k) => ({
        label: labels.length === width ? labels[k] : `${name} ${k}`,
        values: x.map((t) => (Number.isFinite(data[t * width + k]) ? data[t * width + k] : null)),
      }));
      this.charts.push(new Chart(title, x, lines, { onpick: (_, i) => this.go(i) }));
    };
    add("value against return to go", [["value", "value"], ["to_go", "return to go"]]);
    add("reward", [["reward", "reward"]]);
    add("return so far", [["total", "return so far"]]);
    if (!brief) {
      add("advantage", [["advantage", "return to go − value"], ["gae", "GAE"], ["td_error", "TD error"]]);
      add("entropy", [["entropy", "entropy"]]);
      several("probabilities", "probabilities", episode.meta.action.labels);
      several("Q-values", "q", episode.meta.action.labels);
      several("mean", "mean", []);
      if (episode.meta.memory) add("memory norm", [["memory", "norm of the state"]]);
    }
    return el("section", { class: "card columns", "aria-label": "Charts" }, this.charts.map((chart) => chart.root));
  }

  buildAttention() {
    const { episode } = this;
    if (!episode.has("attention")) return null;
    const [, layers, width] = episode.column("attention").shape;
    const rows = [...Array(layers).keys()].map((layer) => {
      const bars = [...Array(width).keys()].map(() => el("div", {}));
      this.updates.push((t) => {
        const row = t < episode.steps ? episode.row("attention", t).subarray(layer * width, (layer + 1) * width) : [];
        const most = Math.max(...row, 1e-9);
        bars.forEach((bar, i) => { bar.style.transform = `scaleY(${(row[i] ?? 0) / most})`; });
      });
      return [el("p", { class: "note" }, `layer ${layer + 1}: left is ${width - 1} steps ago, right is now`),
        el("div", { class: "attention", role: "img", "aria-label": `attention of layer ${layer + 1}` }, bars)];
    });
    return el("section", { class: "card" }, el("h2", {}, "Attention over past steps"), rows);
  }

  csvText() {
    const { episode } = this;
    const names = NUMBERS.map(([name]) => name).filter((name) => episode.has(name));
    const wide = ["probabilities", "q", "mean", "std", "obs"].filter((name) => episode.has(name) && episode.column(name).width);
    const head = ["step", "action", "action_name", ...names, ...wide.flatMap((name) => [...Array(episode.column(name).width).keys()].map((k) => `${name}_${k}`)), "done", ...Object.keys(episode.meta.info).map((key) => `info ${key}`)];
    const rows = [...Array(episode.steps).keys()].map((t) => [t, [...episode.row("action", t)].join(" "), episode.action(t),
      ...names.map((name) => episode.at(name, t)), ...wide.flatMap((name) => [...episode.row(name, t)]), episode.at("done", t),
      ...Object.values(episode.meta.info).map((values) => values[t])]);
    return csv([head, ...rows]);
  }

  buildTable() {
    const { episode } = this;
    const names = NUMBERS.filter(([name]) => episode.has(name) && !["log_prob", "memory"].includes(name));
    const rows = [...Array(Math.min(ROWS, episode.steps)).keys()].map(() => {
      const cells = [el("td", { class: "n" }), el("td", {}), ...names.map(() => el("td", { class: "n" }))];
      const row = { cells, root: el("tr", {}, cells), t: 0 };
      row.root.addEventListener("click", () => this.go(row.t));
      return row;
    });
    this.updates.push((t) => {
      const first = Math.max(Math.min(t - Math.floor(rows.length / 2), episode.steps - rows.length), 0);
      rows.forEach((row, i) => {
        row.t = first + i;
        row.root.classList.toggle("now", row.t === t);
        row.cells[0].textContent = String(row.t);
        row.cells[1].textContent = episode.action(row.t);
        names.forEach(([name], k) => { row.cells[k + 2].textContent = number(episode.at(name, row.t)); });
      });
    });
    const head = el("tr", {}, el("th", { class: "n", scope: "col" }, "step"), el("th", { scope: "col" }, "action"), names.map(([, title]) => el("th", { class: "n", scope: "col" }, title)));
    const file = `${episode.meta.wish.run}-${episode.meta.wish.checkpoint}-seed${episode.meta.wish.seed}.csv`;
    return el("section", { class: "card" },
      el("div", { class: "bar" }, el("h2", { class: "grow" }, "Steps"), el("button", { type: "button", onclick: () => download(file, this.csvText(), "text/csv") }, "Export CSV")),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of steps" }, el("table", { class: "steps" }, el("thead", {}, head), el("tbody", {}, rows.map((row) => row.root)))));
  }
}

// One line about an episode.
export function headline(meta) {
  const { run, checkpoint, seed } = meta.wish;
  return `${run} · ${checkpoint} · seed ${seed} · ${meta.greedy ? "greedy" : "sampled"} · return ${number(meta.return)} in ${number(meta.steps)} steps, ${meta.end === "cut" ? "cut at the limit" : meta.end}`;
}
