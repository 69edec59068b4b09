
"use strict";
// Values under the pointer: every chart carries its own data, so the page works without this script too.
for (const svg of document.querySelectorAll("svg[data-chart]")) {
  const { box, x, y, series } = JSON.parse(svg.dataset.chart);
  const [left, right, top, bottom] = box;
  const { width, height } = svg.viewBox.baseVal;
  const card = svg.parentElement;
  const make = (name, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    node.style.display = "none";
    svg.append(node);
    return node;
  };
  const cursor = make("line", { class: "cursor", y1: top, y2: height - bottom });
  const dots = series.map((line) => make("circle", { class: `dot c${line.c}`, r: 4 }));
  const tip = document.createElement("div");
  tip.className = "tip-box";
  tip.hidden = true;
  card.append(tip);
  const across = (step) => left + ((step - x[0]) / (x[1] - x[0])) * (width - left - right);
  const up = (value) => height - bottom - ((value - y[0]) / (y[1] - y[0])) * (height - top - bottom);
  const text = (value) =>
    Math.abs(value) >= 1000 ? value.toLocaleString("en", { maximumFractionDigits: 1 }) : String(Number(value.toPrecision(4)));
  const nearest = (steps, step) => {
    let low = 0, high = steps.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (steps[middle] < step) low = middle; else high = middle;
    }
    return step - steps[low] <= steps[high] - step ? low : high;
  };
  const hide = () => {
    tip.hidden = true;
    for (const node of [cursor, ...dots]) node.style.display = "none";
  };
  const show = (event) => {
    const place = svg.getBoundingClientRect();
    const step = x[0] + (((event.clientX - place.left) / place.width) * width - left) / (width - left - right) * (x[1] - x[0]);
    const picks = series.map((line) => nearest(line.x, step));
    const lead = series.map((line, i) => line.x[picks[i]]).sort((a, b) => Math.abs(a - step) - Math.abs(b - step))[0];
    tip.replaceChildren();
    const head = document.createElement("div");
    head.textContent = `${lead.toLocaleString("en")} steps`;
    tip.append(head);
    series.forEach((line, i) => {
      const value = line.y[picks[i]];
      dots[i].setAttribute("cx", across(line.x[picks[i]]));
      dots[i].setAttribute("cy", up(value));
      dots[i].style.display = "";
      const row = document.createElement("div");
      const bold = document.createElement("b");
      bold.textContent = text(value);
      row.append(series.length > 1 ? `${line.name} ` : "", bold);
      tip.append(row);
    });
    cursor.setAttribute("x1", across(lead));
    cursor.setAttribute("x2", across(lead));
    cursor.style.display = "";
    tip.hidden = false;
    const inside = card.getBoundingClientRect();
    const at = event.clientX - inside.left;
    tip.style.left = `${at + 16 + tip.offsetWidth > inside.width ? at - tip.offsetWidth - 14 : at + 14}px`;
    tip.style.top = `${event.clientY - inside.top - 12}px`;
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerleave", hide);
}
