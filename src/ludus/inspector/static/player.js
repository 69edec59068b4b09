// The one clock of a page: where it is, whether it plays, and the keys that move it.

import { el } from "./dom.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];

export class Player {
  // last: the last position; jumps: name -> function of a position that gives another one
  constructor(last, fps, { jumps = {}, at = 0, label = "Step" } = {}) {
    this.last = last;
    this.fps = fps || 30;
    this.jumps = jumps;
    this.t = Math.min(Math.max(at, 0), last);
    this.speed = 1;
    this.playing = false;
    this.listeners = [];
    this.build(label);
    this.keys = (event) => this.key(event);
    document.addEventListener("keydown", this.keys);
  }

  build(label) {
    const button = (text, name, act) => el("button", { type: "button", "aria-label": name, title: name, onclick: act }, text);
    this.slider = el("input", { type: "range", class: "slider", min: 0, max: this.last, step: 1, value: this.t, "aria-label": label });
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.playButton = button("▶", "Play (space)", () => this.toggle());
    const speed = el("select", { "aria-label": "Speed" }, SPEEDS.map((x) => el("option", { value: x, selected: x === 1 }, `${x}×`)));
    speed.addEventListener("change", () => { this.speed = Number(speed.value); });
    this.counter = el("output", { class: "counter" });
    const jumps = Object.entries(this.jumps).map(([name, jump]) =>
      el("button", { type: "button", onclick: () => this.go(jump(this.t)) }, name));
    this.root = el("div", { class: "controls" }, this.slider,
      button("|◀", "First step (home)", () => this.go(0)), button("◀", "Step back (left arrow)", () => this.go(this.t - 1)),
      this.playButton, button("▷", "Step forward (right arrow)", () => this.go(this.t + 1)),
      button("▶|", "Last step (end)", () => this.go(this.last)), speed, jumps, this.counter);
  }

  listen(listener) {
    this.listeners.push(listener);
    listener(this.t);
  }

  go(t) {
    const next = Math.min(Math.max(Math.round(t), 0), this.last);
    if (Number.isNaN(next)) return;
    this.t = next;
    this.slider.value = String(next);
    this.slider.setAttribute("aria-valuetext", `step ${next} of ${this.last}`);
    this.counter.textContent = `${next} / ${this.last}`;
    for (const listener of this.listeners) listener(next);
  }

  toggle() {
    this.playing = !this.playing;
    this.playButton.textContent = this.playing ? "❚❚" : "▶";
    this.playButton.setAttribute("aria-label", this.playing ? "Pause (space)" : "Play (space)");
    if (!this.playing) return;
    if (this.t >= this.last) this.go(0);
    let [begun, from, speed] = [performance.now(), this.t, this.speed];
    const tick = (now) => {
      if (!this.playing || this.closed) return;
      if (speed !== this.speed) [begun, from, speed] = [now, this.t, this.speed];
      const t = Math.min(from + Math.floor(((now - begun) / 1000) * this.fps * speed), this.last);
      if (t > this.t) this.go(t);
      else if (t < this.t - 1) [begun, from] = [now, this.t]; // somebody moved it
      if (this.t >= this.last) this.toggle();
      else requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target;
    if (target.closest?.("input:not([type=range]), select, textarea")) return;
    if (event.key === " " && target.closest?.("button, summary, a") && target !== this.playButton) return;
    const acts = {
      " ": () => this.toggle(), ArrowRight: () => this.go(this.t + 1), ArrowLeft: () => this.go(this.t - 1),
      Home: () => this.go(0), End: () => this.go(this.last), PageDown: () => this.go(this.t + 10), PageUp: () => this.go(this.t - 10),
    };
    for (const name of Object.keys(this.jumps)) acts[name[0].toLowerCase()] ??= () => this.go(this.jumps[name](this.t));
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  close() {
    this.closed = true;
    this.playing = false;
    document.removeEventListener("keydown", this.keys);
  }
}
