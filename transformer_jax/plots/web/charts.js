// Vega-Lite specifications, and the function that draws them.

// Each series has its own hue, dashes and point shape. The hues are Okabe and Ito's.
const HUES = {
  light: ["#0072b2", "#c44e00", "#00795a", "#a3477f", "#6a6a00", "#444444"],
  dark: ["#6cb8f0", "#ff9e4a", "#3fd0a4", "#eba0cd", "#e6df5a", "#d0d0d0"],
};
const DASHES = [[1, 0], [7, 4], [2, 3], [10, 3, 2, 3], [14, 5], [4, 2, 1, 2]];
const SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"];

const dark = matchMedia("(prefers-color-scheme: dark)");
const still = matchMedia("(prefers-reduced-motion: reduce)");

function style(number) {
  const hues = HUES[dark.matches ? "dark" : "light"];
  return {
    hue: hues[number % hues.length],
    dash: DASHES[(number + Math.floor(number / hues.length)) % DASHES.length],
    shape: SHAPES[number % SHAPES.length],
  };
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function theme() {
  const [ink, quiet, line] = [colour("--ink"), colour("--quiet"), colour("--line")];
  const words = { labelColor: ink, titleColor: quiet, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" };
  return {
    background: "transparent",
    font: "system-ui, sans-serif",
    view: { stroke: null },
    axis: { ...words, gridColor: line, domainColor: quiet, tickColor: quiet, titlePadding: 6 },
    text: { color: ink },
    legend: words,
    rule: { color: quiet },
  };
}

// The content of a tooltip: text, or a dash if a run has no value.
function asMarkup(value) {
  const element = document.createElement("span");
  element.textContent = value === "NaN" ? "–" : String(value);
  return element.innerHTML;
}

const drawn = new Map(); // element -> the Vega view in it

async function draw(element, spec) {
  const fit = spec.width === "container" ? { autosize: { type: "fit", contains: "padding", resize: true } } : {};
  const whole = { ...spec, ...fit, config: theme() };
  const options = {
    mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false,
    tooltip: { theme: dark.matches ? "dark" : "light", sanitize: asMarkup },
  };
  const { view } = await vegaEmbed(element, whole, options);
  drawn.get(element)?.finalize();
  drawn.set(element, view);
  return view;
}

function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  if (Math.abs(value) < 1e-3) return String(Number(value.toPrecision(digits)));
  return value.toLocaleString("en", { maximumSignificantDigits: digits });
}

// Hue, dashes and shape for the number in `field`; the page has its own legend.
function bySeries(field, numbers) {
  const scale = (what) => ({ domain: numbers, range: numbers.map((i) => style(i)[what]) });
  const channel = (what) => ({ field, type: "nominal", scale: scale(what), legend: null });
  return { color: channel("hue"), strokeDash: channel("dash"), shape: channel("shape") };
}

// Lines of {run, x, y}, with the values of all lines at the pointer.
function curveSpec({ series, x, y, xTitle, logX, logY, points, height }) {
  const numbers = series.map((s) => s.number);
  const rows = series.flatMap((s) => s.rows.map((row) => ({ run: s.number, ...row })));
  const scale = (log, of, zero) => {
    const values = rows.map((row) => row[of]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const space = high > low ? 0 : Math.abs(high) / 10 || 1; // a single value is centred
    return { type: log ? "log" : "linear", nice: !log && !zero, domain: [zero && !log ? 0 : log ? low / (1 + space) : low - space, high + space] };
  };
  const { shape, ...look } = bySeries("run", numbers);
  const xChannel = { field: "x", type: "quantitative", scale: scale(logX, "x", true), title: xTitle, axis: { labelExpr: "format(datum.value, '~s')", tickCount: 5, ...(xTitle === "minutes" ? {} : { tickMinStep: 1 }), grid: false } };
  const yChannel = { field: "y", type: "quantitative", scale: scale(logY, "y", false), title: null, axis: { tickCount: 5, format: y } };
  return {
    width: "container", height,
    layer: [
      { data: { values: rows },
        encoding: { x: xChannel, y: yChannel, ...look },
        layer: [
          { mark: { type: "line", strokeWidth: 2 } },
          { mark: { type: "point", filled: true, size: points ? 45 : 30 },
            encoding: { shape, strokeDash: { value: [1, 0] } },
            ...(points ? {} : { transform: [{ filter: { param: "hover", empty: false } }] }) },
        ] },
      { data: { values: underPointer(series) },
        mark: { type: "rule", strokeWidth: 8 },
        params: [{ name: "hover", select: { type: "point", fields: ["x"], nearest: true, on: "pointermove", clear: "pointerout" } }],
        encoding: {
          x: xChannel,
          opacity: { condition: { value: 0.25, param: "hover", empty: false }, value: 0 },
          tooltip: [{ field: "x", title: xTitle, type: "quantitative", format: ",.6~g" },
            ...series.map((s) => ({ field: `r${s.number}`, title: s.name, type: "quantitative", format: ",.5~g" }))],
        } },
    ],
  };
}

// For each x of any series, the value of every series there, or at its nearest row.
function underPointer(series) {
  const places = [...new Set(series.flatMap((s) => s.rows.map((row) => row.x)))].sort((a, b) => a - b);
  return places.map((x) => {
    const shown = { x };
    for (const { number: i, rows } of series) {
      const near = rows.reduce((best, row) => (Math.abs(row.x - x) < Math.abs(best.x - x) ? row : best), rows[0]);
      if (x <= rows.at(-1).x && x >= rows[0].x) shown[`r${i}`] = near.y;
    }
    return shown;
  });
}

// A score by groups of sentences or words, in the given order.
function groupSpec({ rows, value, xTitle, unit, systems, format }) {
  const names = new Map(systems.map((s) => [s.run, s.name]));
  const values = rows.map((row) => ({
    group: row.group, series: systems[row.system].run, name: names.get(systems[row.system].run),
    label: `${row.label}|${row.count.toLocaleString("en")}`, count: row.count, value: row[value], range: row.label,
  }));
  const order = [...new Map(values.map((v) => [v.group, v.label])).values()];
  const { color, strokeDash, shape } = bySeries("series", systems.map((s) => s.run));
  return {
    data: { values }, width: "container", height: 230,
    encoding: {
      x: { field: "label", type: "ordinal", sort: order, title: xTitle, axis: { labelAngle: 0, labelExpr: "split(datum.label, '|')", labelOverlap: false } },
      y: { field: "value", type: "quantitative", title: null, scale: { zero: value !== "length ratio" }, axis: { tickCount: 5 } },
      color,
    },
    layer: [
      { mark: { type: "line", strokeWidth: 2 }, encoding: { strokeDash } },
      { mark: { type: "point", filled: true, size: 90 },
        encoding: { shape, tooltip: [
          { field: "name", title: "run" }, { field: "range", title: xTitle },
          { field: "count", title: unit, format: "," }, { field: "value", title: value, type: "quantitative", format }] } },
    ],
  };
}

// Seconds by activity, a bar per run.
function phaseSpec(rows) {
  const order = ["step", "input", "evaluation", "checkpoint"];
  const greys = dark.matches ? ["#8a94a6", "#e8ecf3", "#3c67a8", "#c98a3a"] : ["#8a94a6", "#20242c", "#9ec3f0", "#e2a04f"];
  return {
    data: { values: rows }, width: "container", height: 90 + 34 * new Set(rows.map((row) => row.run)).size,
    encoding: {
      y: { field: "run", type: "nominal", title: null, sort: null, axis: { labelLimit: 130, ticks: false, domain: false } },
      x: { field: "seconds", type: "quantitative", stack: "zero", title: "seconds", axis: { tickCount: 5, format: "~s" } },
      order: { field: "place", type: "quantitative" },
    },
    layer: [
      { mark: { type: "bar", stroke: colour("--page"), strokeWidth: 1.5 },
        encoding: {
          color: { field: "activity", type: "nominal", sort: order, scale: { domain: order, range: greys }, title: null, legend: { orient: "top", columns: innerWidth < 600 ? 2 : 4 } },
          tooltip: [{ field: "run" }, { field: "activity" }, { field: "seconds", format: ",.1f" }, { field: "share", format: ".1%" }] } },
      { transform: [{ filter: "datum.place === 0" }], mark: { type: "text", align: "left", dx: 5 },
        encoding: { x: { field: "total", type: "quantitative" }, text: { field: "all" } } },
    ],
  };
}

// The attention of one head, or the mean of all.
function attentionSpec({ source, target, weights }, layer, head) {
  const heads = weights[layer];
  const rows = target.flatMap((_, t) => source.map((_, s) => {
    const each = head === null ? heads.map((w) => w[t][s]) : [heads[head][t][s]];
    return { s, t, source: source[s], target: target[t], weight: each.reduce((a, b) => a + b, 0) / each.length / 1000 };
  }));
  const cell = 24;
  // Pieces are passed as parameter values, never as part of an expression.
  const axis = (name) => ({ labelExpr: `${name}[datum.value]`, labelLimit: 150, ticks: false, domain: false, title: name, labelOverlap: false });
  return {
    data: { values: rows }, width: { step: cell }, height: { step: cell },
    params: [{ name: "source", value: source }, { name: "target", value: target }],
    mark: { type: "rect", stroke: colour("--line"), strokeWidth: 0.5 },
    encoding: {
      x: { field: "s", type: "ordinal", axis: { ...axis("source"), orient: "top", labelAngle: -60 } },
      y: { field: "t", type: "ordinal", axis: axis("target") },
      color: { field: "weight", type: "quantitative", scale: { domainMin: 0, interpolate: "rgb", range: [colour("--heat-low"), colour("--heat-high")] }, legend: { title: "weight", gradientLength: 100, format: ".1f" } },
      tooltip: [{ field: "target" }, { field: "source" }, { field: "weight", format: ".3f" }],
    },
  };
}

// A line per point of a sweep, across its fields and its score.
function parallelSpec(rows, axes, by, greater, width) {
  const lines = [], ticks = [];
  axes.forEach((axis, place) => {
    const known = rows.map((row) => row.values[axis]).filter((v) => v !== null && v !== undefined);
    const numeric = known.every((v) => typeof v === "number");
    const distinct = [...new Set(known)].sort((a, b) => (numeric ? a - b : String(a).localeCompare(String(b))));
    const few = !numeric || distinct.length <= 9; // texts are placed by their order only
    const [low, high] = [distinct[0], distinct.at(-1)];
    const height = (v) => {
      if (distinct.length < 2) return 0.5;
      return few && axis !== by ? distinct.indexOf(v) / (distinct.length - 1) : (v - low) / (high - low);
    };
    for (const v of distinct.length <= 9 && axis !== by ? distinct : [low, high]) {
      ticks.push({ place, height: height(v), text: typeof v === "number" ? number(v, axis === by ? 4 : 6) : v });
    }
    for (const row of rows) {
      const v = row.values[axis];
      if (v === null || v === undefined) continue;
      lines.push({ place, height: height(v), id: row.id, name: row.name, score: row.values[by] ?? null,
        field: axis, value: typeof v === "number" ? number(v, 6) : v });
    }
  });
  const x = { field: "place", type: "ordinal", title: null, scale: { padding: 0.1 },
    axis: { orient: "top", labelExpr: "names[datum.value]", labelAngle: 0, labelLimit: 220, grid: true, ticks: false, domain: false, labelFontWeight: "bold", labelOverlap: false, labelPadding: 14 } };
  const y = { field: "height", type: "quantitative", axis: null, scale: { domain: [-0.04, 1.04], nice: false } };
  const picked = { test: "picked === datum.id", value: 1 };
  const strong = [picked, { param: "over", empty: false, value: 1 }];
  const shade = { field: "score", type: "quantitative", title: by, scale: { reverse: !greater, range: dark.matches ? ["#4b6a94", "#ffffff"] : ["#a9c4e6", "#08254d"] }, legend: { orient: "bottom", gradientLength: 160 } };
  return {
    width: Math.max(width - 60, 130 * axes.length), height: 300,
    params: [{ name: "names", value: axes.map((a) => a.split(".").at(-1)) }, { name: "picked", value: null }],
    encoding: { x, y },
    layer: [
      { data: { values: lines }, mark: "line",
        encoding: { detail: { field: "id" }, description: { field: "name" }, color: shade,
          strokeWidth: { condition: [{ test: "picked === datum.id", value: 5 }, { param: "over", empty: false, value: 4 }], value: 1.6 },
          opacity: { condition: strong, value: 0.75 } } },
      // Invisible wider lines make the lines easier to point at.
      { data: { values: lines }, mark: { type: "line", opacity: 0, strokeWidth: 14 },
        params: [{ name: "over", select: { type: "point", fields: ["id"], on: "pointerover", clear: "pointerout" } }],
        encoding: { detail: { field: "id" }, tooltip: [{ field: "name", title: "point" }, { field: "score", title: by, format: ".4~g" }] } },
      { data: { values: lines }, mark: { type: "point", filled: true, size: 60 },
        encoding: { color: shade, detail: { field: "id" },
          tooltip: [{ field: "name", title: "point" }, { field: "field" }, { field: "value" }, { field: "score", title: by, format: ".4~g" }] } },
      { data: { values: ticks }, mark: { type: "text", align: "left", dx: 7, dy: -7, fontSize: 11.5, stroke: colour("--page"), strokeWidth: 3, strokeOpacity: 0.8 }, encoding: { text: { field: "text" } } },
      { data: { values: ticks }, mark: { type: "text", align: "left", dx: 7, dy: -7, fontSize: 11.5 }, encoding: { text: { field: "text" } } },
    ],
  };
}
