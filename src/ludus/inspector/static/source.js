// A recorded episode: facts, columns of numbers and pictures, from the server or from the page itself.

import { Pictures } from "./pictures.js";

export class Episode {
  constructor(meta, arrays, load, id = "") {
    this.meta = meta;
    this.id = id;
    this.steps = meta.steps;
    this.arrays = arrays;
    this.columns = new Map();
    this.frames = meta.frames ? new Pictures(meta.frames.index, (a, b) => load("frames.bin", a, b)) : null;
    this.seen = meta.seen ? new Pictures(meta.seen.index, (a, b) => load("seen.bin", a, b)) : null;
  }

  has(name) {
    return name in this.meta.arrays;
  }

  // The numbers of a column and how many of them a step has.
  column(name) {
    if (!this.columns.has(name)) {
      const { at, shape, type } = this.meta.arrays[name];
      const size = shape.reduce((a, b) => a * b, 1);
      const data = new (type === "f8" ? Float64Array : Float32Array)(this.arrays, at, size);
      this.columns.set(name, { data, width: shape.slice(1).reduce((a, b) => a * b, 1), shape });
    }
    return this.columns.get(name);
  }

  at(name, t) {
    if (!this.has(name) || t >= this.steps) return null;
    const { data, width } = this.column(name);
    return data[t * width];
  }

  row(name, t) {
    const { data, width } = this.column(name);
    return data.subarray(t * width, (t + 1) * width);
  }

  // The action as people name it.
  action(t) {
    if (t >= this.steps) return "the end";
    const row = this.row("action", t);
    const labels = this.meta.action.labels;
    if (row.length === 1 && labels.length > row[0] && row[0] >= 0) return labels[row[0]];
    return [...row].map((x) => Number(x.toPrecision(5))).join(", ");
  }
}
