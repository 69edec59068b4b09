// Line charts by uPlot, with a mark for the current position that moves without drawing anything again.

import { el, number, shade } from "./dom.js";

export const LINES = ["#3d7ec2", "#c2603d", "#2f9367", "#a455b5", "#8a7a1f", "#4b5bd6", "#b23a6b", "#3b8f9b"];

export class Chart {
  // lines: [{label, values, colour?, width?, fill?}] over x; onpick(x, index) when somebody clicks
  constructor(title, x, lines, { height = 130, log = false, bands = [], onpick = null, xlabel = "step", time = false } = {}) {
    this.x = x;
    this.place = el("div", {});
    const names = lines.filter((line) => line.label).map((line, i) => {
      const mark = el("span", { class: "swatch", "aria-hidden": "true" });
      mark.style.background = line.colour ?? LINES[i % LINES.length];
      return el("span", {}, mark, line.label);
    });
    this.readout = el("span", { class: "readout" });
    this.root = el("div", { class: "chart", role: "group", "aria-label": `chart of ${title}` },
      el("div", { class: "title" }, el("strong", {}, title), names, this.readout), this.place);
    this.options = { title, lines, height, log, bands, onpick, xlabel, time };
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.root);
  }

  draw() {
    const { lines, height, log, bands, onpick } = this.options;
    const axis = { stroke: shade("--soft"), grid: { stroke: shade("--line"), width: 1 }, ticks: { stroke: shade("--line") }, font: "11px system-ui" };
    const values = (_, splits) => splits.map((x) => (x === null ? "" : short(x)));
    const series = lines.map((line, i) => ({
      label: line.label || "", stroke: line.colour ?? LINES[i % LINES.length], width: line.width ?? 1.5, dash: line.dash,
      points: { show: line.values.length < 60 && line.width !== 0 }, spanGaps: false,
    }));
    const data = [this.x, ...lines.map((line) => line.values)];
    const padded = (u, low, high) => {
      const pad = high > low ? (high - low) * 0.05 : 1; // a line without slope lies in the middle
      return low === null ? [0, 1] : [low - pad, high + pad];
    };
    const positive = (u, low, high) => [Math.max(low ?? 1e-3, 1e-9), Math.max(high ?? 1, (low ?? 1e-3) * 1.01)];
    this.plot = new uPlot({
      width: Math.max(this.root.clientWidth, 120), height, legend: { show: false }, bands,
      cursor: { drag: { x: true, y: false }, y: false },
      scales: { x: { time: false }, y: log ? { distr: 3, range: positive } : { range: padded } },
      axes: [{ ...axis, values, size: 26 }, { ...axis, values, size: 52 }],
      series: [{}, ...series],
      hooks: { ready: [() => setTimeout(() => this.mark(this.marked))], setCursor: [(plot) => this.read(plot)] },
    }, data, this.place);
    this.cursor = el("div", { class: "cursor", hidden: true });
    this.plot.over.append(this.cursor);
    if (onpick) {
      this.plot.over.addEventListener("click", () => {
        const i = this.plot.cursor.idx;
        if (i !== null && i !== undefined) onpick(this.x[i], i);
      });
    }
  }

  read(plot) {
    const i = plot.cursor.idx;
    const shown = this.options.lines.filter((line) => line.label);
    this.readout.textContent = i === null || i === undefined ? ""
      : `${this.options.xlabel} ${number(this.x[i])}: ${shown.map((line) => number(line.values[i])).join(" · ")}`;
  }

  resize() {
    if (!this.root.clientWidth) return;
    if (!this.plot) this.draw();
    else if (Math.abs(this.plot.width - this.root.clientWidth) > 1) {
      this.plot.setSize({ width: this.root.clientWidth, height: this.options.height });
      this.mark(this.marked);
    }
  }

  // Moves the mark to a position on the x axis.
  mark(x) {
    this.marked = x;
    if (!this.cursor || x === undefined || x === null) return;
    this.cursor.hidden = false;
    this.cursor.style.transform = `translateX(${this.plot.valToPos(x, "x") - 1}px)`;
  }

  close() {
    this.observer.disconnect();
    this.plot?.destroy();
  }
}

function short(x) {
  const size = Math.abs(x);
  if (size >= 1e9) return `${Number((x / 1e9).toPrecision(4))}G`;
  if (size >= 1e6) return `${Number((x / 1e6).toPrecision(4))}M`;
  if (size >= 1e4) return `${Number((x / 1e3).toPrecision(4))}k`;
  return String(Number(x.toPrecision(4)));
}
