// One curve over time in an SVG that is as many units wide as it has pixels. With the pointer, or the arrow keys once it has
// the focus, its points are read one by one.
class Chart {
  constructor(svg, said, format, fromZero) {
    this.svg = svg;
    this.said = said;
    this.format = format;
    this.fromZero = fromZero;
    this.points = [];
    this.marks = [];
    this.chosen = -1;
    this.grid = this.add("g");
    this.markGroup = this.add("g");
    this.curve = this.add("path", {class: "curve"});
    this.cross = this.add("line", {class: "cross"});
    this.dot = this.add("circle", {r: 3.5});
    this.labels = this.add("g");
    svg.addEventListener("pointermove", (event) => this.choose(this.nearest(event.clientX - svg.getBoundingClientRect().left)));
    svg.addEventListener("pointerleave", () => this.choose(-1));
    svg.addEventListener("blur", () => this.choose(-1));
    svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(svg);
  }

  add(tag, attributes = {}, parent = this.svg) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    parent.append(element);
    return element;
  }

  // `points`: [seconds, value, step], by time; `marks`: the seconds at which later generations began; `end`: of the time axis.
  show(points, marks, end) {
    if (this.chosen >= points.length) this.chosen = -1;
    this.points = points;
    this.marks = marks;
    this.end = end;
    this.draw();
  }

  key(event) {
    const last = this.points.length - 1;
    const from = this.chosen < 0 ? last : this.chosen;
    const to = {ArrowLeft: from - 1, ArrowDown: from - 1, ArrowRight: from + 1, ArrowUp: from + 1, PageDown: from - 20,
      PageUp: from + 20, Home: 0, End: last, Escape: -1}[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.choose(event.key === "Escape" ? -1 : Math.min(Math.max(to, 0), last));
  }

  nearest(x) {
    if (!this.xOf) return -1;
    let best = -1;
    let distance = Infinity;
    this.points.forEach(([seconds], index) => {
      const off = Math.abs(this.xOf(seconds) - x);
      if (off < distance) [best, distance] = [index, off];
    });
    return best;
  }

  choose(index) {
    if (this.chosen === index) return;
    this.chosen = index;
    this.draw();
  }

  say(index) {
    const [seconds, value, step] = this.points[index];
    return this.format(value) + " at step " + grouped(step) + ", " + duration(seconds);
  }

  // As many children of `group` as there are `items`; `attributes(item)` says what each has.
  draws(group, tag, items, attributes, text) {
    while (group.children.length > items.length) group.lastElementChild.remove();
    while (group.children.length < items.length) this.add(tag, {}, group);
    items.forEach((item, index) => {
      for (const [name, value] of Object.entries(attributes(item))) setAttribute(group.children[index], name, value);
      if (text) setText(group.children[index], text(item));
    });
  }

  draw() {
    const width = this.svg.clientWidth;
    const height = this.svg.clientHeight;
    if (this.points.length === 0 || width < 80) return;
    const axis = valueAxis(this.points.map((point) => point[1]), this.fromZero);
    const valueLabels = axis.ticks.map((tick) => this.format(tick, axis.step));
    const left = 12 + 6.4 * Math.max(...valueLabels.map((label) => label.length));
    const [right, top, bottom] = [width - 10, 8, height - 20];
    const end = Math.max(this.end, this.points.at(-1)[0], 1e-3);
    const xOf = (seconds) => left + (right - left) * seconds / end;
    const yOf = (value) => bottom - (bottom - top) * axis.at(value);
    this.xOf = xOf;

    const times = timeTicks(end, Math.max(2, Math.floor((right - left) / 90)));
    this.draws(this.grid, "line", axis.ticks, (tick) => ({class: "grid", x1: left, x2: right, y1: round(yOf(tick)), y2: round(yOf(tick))}));
    this.draws(this.labels, "text", [
      ...axis.ticks.map((tick, index) => ({x: left - 6, y: yOf(tick) + 4, anchor: "end", text: valueLabels[index]})),
      ...times.map((seconds) => ({x: xOf(seconds), y: height - 5, anchor: seconds === 0 ? "start" : "middle", text: tickText(seconds)})),
    ], (label) => ({x: round(label.x), y: round(label.y), "text-anchor": label.anchor}), (label) => label.text);
    this.draws(this.markGroup, "line", this.marks.slice(-40),
      (seconds) => ({class: "mark", x1: round(xOf(seconds)), x2: round(xOf(seconds)), y1: top, y2: bottom}));

    let path = "";
    let before = -1;
    for (const [seconds, value] of this.points) {
      const broken = before < 0 || this.marks.some((mark) => mark > before && mark <= seconds);
      // (A point that stands alone is a dot: round caps.)
      path += (broken ? "M" : "L") + round(xOf(seconds)) + " " + round(yOf(value)) + (broken ? "h0" : "");
      before = seconds;
    }
    setAttribute(this.curve, "d", path);

    const index = this.chosen < 0 ? this.points.length - 1 : this.chosen;
    const [seconds, value] = this.points[index];
    this.cross.toggleAttribute("hidden", this.chosen < 0);
    for (const [name, to] of Object.entries({x1: xOf(seconds), x2: xOf(seconds), y1: top, y2: bottom})) {
      setAttribute(this.cross, name, round(to));
    }
    setAttribute(this.dot, "cx", round(xOf(seconds)));
    setAttribute(this.dot, "cy", round(yOf(value)));
    setText(this.said, (this.chosen < 0 ? "now " + this.format(value) : this.say(index)) + (axis.logarithmic ? ", logarithmic" : ""));
    setAttribute(this.svg, "aria-valuemin", 0);
    setAttribute(this.svg, "aria-valuemax", this.points.length - 1);
    setAttribute(this.svg, "aria-valuenow", index);
    setAttribute(this.svg, "aria-valuetext", this.say(index));
  }
}

const round = (value) => Math.round(value * 10) / 10;

// Steps of 1, 2 or 5 times a power of ten, at most `count` of them over `span`.
function niceStep(span, count) {
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
}

// Where a value stands between 0 and 1, and the lines to draw. Logarithmic where the values span more than two powers of ten.
function valueAxis(values, fromZero) {
  const high = Math.max(...values);
  const low = Math.min(...values);
  if (!fromZero && low > 0 && high / low > 100) {
    const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    const every = Math.ceil((to - from) / 5);
    const ticks = [];
    for (let power = from; power <= to; power += every) ticks.push(10 ** power);
    return {logarithmic: true, ticks, step: 0, at: (value) => (Math.log10(value) - from) / (to - from)};
  }
  const span = (high - (fromZero ? Math.min(0, low) : low)) || Math.abs(high) || 1;
  const step = niceStep(span, 4);
  const from = Math.floor((fromZero ? Math.min(0, low) : low) / step);
  const to = Math.max(Math.ceil(high / step), from + 1);
  const ticks = [];
  for (let index = from; index <= to; ++index) ticks.push(index * step);
  return {logarithmic: false, ticks, step, at: (value) => (value / step - from) / (to - from)};
}

function timeTicks(end, count) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const step = end <= count ? niceStep(end, count) : steps.find((each) => end / each <= count) || niceStep(end / 86400, count) * 86400;
  const ticks = [];
  for (let index = 0; index * step <= end; ++index) ticks.push(index * step);
  return ticks;
}

function tickText(seconds) {
  if (seconds < 60) return Number(seconds.toPrecision(3)) + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + (seconds % 60 ? ":" + two(Math.round(seconds % 60)) : "") + " min";
  if (seconds < 86400) return Math.floor(seconds / 3600) + (seconds % 3600 ? ":" + two(Math.round(seconds % 3600 / 60)) : "") + " h";
  return Number((seconds / 86400).toPrecision(3)) + " d";
}
