// The page: turns the data into text, tables and charts. Nothing from a corpus is ever parsed as
// mark-up: all of it goes through `el` and `text`, which create text nodes.

const byId = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Text in any script, in its own direction.
const text = (tag, line) => el(tag, { dir: "auto" }, line);

function show(id) {
  byId(id).hidden = false;
}

const keepers = new Map(); // element -> how to redraw it when the colour scheme changes

async function keep(element, makeSpec) {
  keepers.set(element, makeSpec);
  return draw(element, makeSpec());
}

dark.addEventListener("change", () => {
  for (const [element, makeSpec] of keepers) draw(element, makeSpec());
  for (const swatch of document.querySelectorAll("[data-series]")) swatch.replaceChildren(sample(Number(swatch.dataset.series)));
});

function sample(series) {
  const { hue, dash, shape } = style(series);
  const svg = (tag, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const picture = svg("svg", { width: 40, height: 14, "aria-hidden": "true" });
  const points = {
    circle: "M16,7a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", square: "M16,3h8v8h-8z", "triangle-up": "M20,2l5,9h-10z",
    diamond: "M20,2l4,5l-4,5l-4,-5z", cross: "M18.5,2h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z", "triangle-down": "M20,12l5,-9h-10z",
  };
  picture.append(svg("line", { x1: 1, x2: 39, y1: 7, y2: 7, stroke: hue, "stroke-width": 2, "stroke-dasharray": dash.join(" ") }), svg("path", { d: points[shape], fill: hue }));
  return picture;
}

function swatch(series) {
  return el("span", { "data-series": series }, sample(series));
}

function table(head, rows, attributes = {}) {
  const label = (i) => ({ "data-label": head[i] });
  const cells = (row) => row.map((cell, i) => (cell instanceof Node ? el("td", label(i), cell)
    : typeof cell === "number" ? el("td", { class: "number", ...label(i) }, number(cell)) : el("td", label(i), text("span", cell ?? "–"))));
  return el("table", attributes,
    el("thead", {}, el("tr", {}, ...head.map((name, i) => el("th", { scope: "col", ...(typeof rows[0]?.[i] === "number" ? { class: "number" } : {}) }, name)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...cells(row)))));
}

// Adds a cue above an element that is wider than its container.
function cued(element) {
  const cue = el("p", { class: "cue" }, "More to the right: scroll horizontally.");
  element.before(cue);
  const update = () => { cue.hidden = element.scrollWidth <= element.clientWidth + 1; };
  const watcher = new ResizeObserver(update);
  new MutationObserver(() => {
    for (const child of element.children) watcher.observe(child);
    update();
  }).observe(element, { childList: true });
  for (const child of [element, ...element.children]) watcher.observe(child);
  update();
}

// --- the abstract --------------------------------------------------------------------------------

function language(code) {
  // A file suffix that is not a language code is shown unchanged.
  return /^[a-z]{2}(-[A-Z]{2})?$/.test(code) ? new Intl.DisplayNames(["en"], { type: "language" }).of(code) : code;
}

function duration(minutes) {
  if (minutes < 1) return `${number(60 * minutes, 2)} seconds`;
  return minutes < 120 ? `${number(minutes, 3)} minutes` : `${number(minutes / 60, 3)} hours`;
}

const million = (count) => (count >= 1e6 ? `${number(count / 1e6, 3)} million` : count.toLocaleString("en"));
const spoken = (name) => name.replaceAll("_", " "); // bits_per_byte

function sentences(run, split) {
  const f = run.facts;
  const epochs = f.steps_an_epoch && f.steps ? ` (${number(f.steps / f.steps_an_epoch, 2)} epochs)` : "";
  const model = `${f.body} with ${million(f.parameters)} parameters`;
  const lines = [f.translates
    ? `A ${model} that translates ${language(f.source_language)} into ${language(f.target_language)}.`
    : `${f.kind}: a ${model}.`];
  if (f.steps) {
    const items = f.pairs ? `${f.pairs.toLocaleString("en")} ${f.items} of ${f.corpus}` : f.corpus;
    const total = spent(run);
    const time = total ? `${duration(total / 60)}, of which its steps, once compiled, took ${duration(f.minutes)}` : `${duration(f.minutes)} of training steps`;
    lines.push(`It was trained on ${items} for ${f.steps.toLocaleString("en")} steps${epochs}, ${million(f.tokens)} target tokens, in ${time}.`);
  }
  const best = run.evaluation;
  if (best) {
    const found = Object.entries(best.scores).map(([name, s]) => `${spoken(name)} ${number(s.value, f.translates ? 3 : 4)}${interval(s, " (95 % interval ", ")")}`);
    const of = f.splits[split] ?? split;
    lines.push(f.translates
      ? `On the ${best.sentences.toLocaleString("en")} sentences of ${of} it scores ${found.join(" and ")}.`
      : `On ${of} it has ${found.join(", ")}.`);
  } else if (Object.keys(f.validation).length) {
    const found = Object.entries(f.validation).map(([name, value]) => `${name} ${number(value, 3)}`);
    lines.push(`Its best validation so far: ${found.join(", ")}. It has not been scored on ${split}.`);
  }
  return lines.join(" ");
}

// The seconds of a run, including start-up, compilation, validation and saving; 0 if not recorded.
function spent(run) {
  return Object.values(run.seconds).reduce((a, b) => a + b, 0);
}

function interval(score, before = "", after = "") {
  return score.interval ? `${before}${score.interval.map((v) => (Math.round(10 * v) / 10 + 0).toFixed(1)).join(" to ")}${after}` : "";
}

function copied(command) {
  // Breaks between arguments, not within them, if there is room.
  const code = el("code", {}, ...command.split(/(?<= )(?=--)/).map((part) => el("span", {}, part)));
  const button = el("button", { type: "button" }, "Copy");
  const status = el("span", { role: "status" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      status.textContent = " copied";
    } catch {
      getSelection().selectAllChildren(code); // no clipboard access: Ctrl-C copies the selection
      status.textContent = " selected: press Ctrl-C";
    }
  });
  return [button, status, el("pre", { class: "command" }, code)];
}

function card(run, number_, many, split) {
  const f = run.facts;
  const total = spent(run);
  const shares = Object.entries(run.seconds).map(([name, s]) => `${name} ${number(100 * s / total, 3)} %`).join(", ");
  const left = f.steps !== null && f.steps < f.steps_planned ? `, ${f.steps.toLocaleString("en")} of ${f.steps_planned.toLocaleString("en")} steps` : "";
  const facts = [
    ["state", f.state + left], ["model", f.model], ["tokenizer", f.tokenizer], ["seed", String(f.seed)],
    ["machine", f.machine], ["time", total ? `${duration(total / 60)}: ${shares}` : null], ["code", f.commit ? `commit ${f.commit.replace(/-dirty$/, ", with uncommitted changes")}` : null],
    ["versions", f.versions], ["directory", f.workdir],
    ["not recorded", f.recorded ? null : "machine, code, versions: the run is from an earlier version"],
  ].filter(([, value]) => value);
  return el("div", { class: "card" },
    ...(many ? [el("h3", {}, swatch(number_), " ", el("bdi", {}, run.training))] : []),
    text("p", sentences(run, split)),
    el("details", {}, el("summary", {}, "Model, machine, time, code, and the command to reproduce the run"),
      el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", {}, name), text("dd", value)])),
      el("p", {}), el("span", {}, f.recorded ? "Command to reproduce the run " : "Command to reproduce the run, from its config.json "), ...copied(f.command)));
}

function abstracts(report) {
  const whole = report.runs.filter((run) => run.whole);
  show("abstract");
  if (report.sweep) byId("abstract-heading").textContent = report.sweep.verdict.best ? "The best point of the sweep" : "The first point of the table";
  byId("cards").append(...whole.filter((run) => !run.again).map((run) => card(run, report.runs.indexOf(run), report.runs.length > 1, report.split)));
  const known = new Map(whole.flatMap((run) => run.settings.map(([path, , base]) => [path, base])));
  const settings = [...known].map(([path, base]) => [path, ...whole.map((run) => run.settings.find(([p]) => p === path)?.[1] ?? base), base]);
  if (whole.length > 1) {
    const rows = settings.filter((row) => row.slice(2, -1).some((value) => value !== row[1])).map((row) => row.slice(0, -1));
    byId("differences").append(el("h3", {}, "Differing settings"), rows.length
      ? el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Settings that differ" }, table(["setting", ...whole.map((run) => run.name)], rows))
      : el("p", {}, "None."));
  }
  if (settings.length) {
    show("settings");
    byId("settings-table").append(table(["setting", ...(whole.length > 1 ? whole.map((run) => run.name) : ["value"]), "default"], settings));
  }
}

// --- scores --------------------------------------------------------------------------------------

const ABOUT = {
  BLEU: "BLEU counts the word n-grams that a translation shares with its reference; 100 is the reference itself.",
  chrF: "chrF counts the character n-grams that a translation shares with its reference, up to 100.",
  TER: "TER counts the edits that turn a translation into its reference, per 100 words of the reference; lower is better.",
  accuracy: "Accuracy is the percentage of texts that are assigned their own class; the smaller figures are its 95 % interval (Wilson score).",
  legal: "Legal: the percentage of likeliest moves that are legal. Agreement: the percentage of likeliest legal moves that are among the teacher's best.",
  loss: "Loss is the mean negative log-probability of a piece, or of a class, in nats; lower is better.",
  perplexity: "Perplexity is e to the power of the loss.",
  bits_per_character: "Bits per character and per byte: the negative log-probability of the text in bits, divided by the number of its characters or bytes.",
};

// Translation scores need no more digits than their intervals; others do.
const rounded = (name, value) => (value >= 1 && ["BLEU", "chrF", "TER", "accuracy", "legal", "agreement"].includes(name) ? value.toFixed(1) : number(value, value >= 1 ? 4 : 2));

function aboutScores(names, columns, rows) {
  const has = (name) => columns.some(([column]) => column === name);
  const intervals = rows.some((e) => Object.values(e.scores).some((s) => s.interval && s.signature));
  const signatures = [...new Set(rows.flatMap((e) => Object.entries(e.scores).filter(([, s]) => s.signature).map(([name, s]) => `${name} ${s.signature}`)))];
  return [
    ...names.map((name) => ABOUT[name]), intervals && "The smaller figures: the interval of 95 % of bootstrap resamples of the sentences.",
    "Checkpoint: the best by validation, the last, a step, or average:N, the mean of the last N.",
    has("search") && "Search: of the settings stored with the scores, the beam size and those that differ between the rows.",
    has("length ratio") && "Length ratio: words of the translations per word of the references.", signatures.length && "Signatures:",
  ].filter(Boolean).map((sentence) => `${sentence} `).concat(signatures.flatMap((s) => [el("code", {}, s), " "]));
}

function scores(report) {
  const whole = report.runs.filter((run) => run.whole);
  const rows = report.scores;
  const missing = whole.filter((run) => !(run.evaluation && !run.facts.translates) && !report.systems.some((s) => report.runs[s.run] === run));
  show("scores");
  if (!whole.some((run) => run.facts.translates)) byId("scores-heading").textContent = "Prediction quality";
  const score = (name, s) => (s ? el("span", {}, el("strong", {}, rounded(name, s.value)), " ", el("small", { class: "quiet interval" }, interval(s))) : null);
  const names = [...new Set(rows.flatMap((e) => Object.keys(e.scores)))];
  const search = (e) => Object.entries(e.search).map(([name, value]) => `${name === "beam_size" ? "beam" : name} ${value}`).join(", ");
  const columns = [
    ["run", (e) => e.run], ["split", (e) => e.split], ["checkpoint", (e) => e.checkpoint],
    ...names.map((name) => [spoken(name), (e) => score(name, e.scores[name])]),
    ["length ratio", (e) => e.length_ratio], ["exact matches", (e) => (e.exact_match === null ? null : `${e.exact_match.toFixed(1)} %`)],
    [[...new Set(whole.map((run) => run.facts.scored))].join(" or "), (e) => e.sentences], ["search", (e) => search(e) || null],
  ].filter(([, value]) => rows.some((e) => value(e) !== null));
  if (rows.length) {
    byId("scores-table").append(
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Scores" },
        table(columns.map(([name]) => name), rows.map((e) => columns.map(([, value]) => value(e))), { class: "stack" })),
      el("details", {}, el("summary", {}, "About these figures"), el("p", { class: "quiet" }, ...aboutScores(names, columns, rows))));
  }
  for (const { one, other, metric, different, p, shown_p, difference } of report.tests) {
    const [change, low, high] = difference.map((v) => `${v < 0 ? "" : "+"}${number(v, 3)}`);
    const verdict = different ? "differ significantly" : "do not differ significantly";
    byId("tests").append(text("p", `${spoken(metric)}: ${one} and ${other} ${verdict} on ${report.split}: difference ${change}, 95 % interval ${low} to ${high} (${p.map(([test], i) => `${test}, ${shown_p[i]}`).join("; ")}).`));
  }
  for (const run of missing) {
    byId("tests").append(el("p", {}, el("bdi", {}, run.name), run.evaluation
      ? ": its sentences cannot be shown here, as it was scored on other references, by another protocol, or by an older version. To score it again: "
      : run.facts.translates
        ? `: no translations of ${report.split} with checkpoint ${run.checkpoint}. To create them: `
        : `: not scored on ${report.split} with checkpoint ${run.checkpoint}. To score it: `, ...copied(run.evaluate)));
  }
}

function where(report) {
  const { groups, systems } = report;
  if (!systems.length) return;
  show("where");
  const several = systems.length > 1;
  byId("where-legend").append(...(several ? systems.map((s) => el("span", {}, swatch(s.run), el("bdi", {}, s.name))) : []));
  byId("where-about").textContent = "Below each group is its number of sentences or words; small groups say little. Rare words are those that hardly occur on the target side of the training text.";
  const charts = [
    ["length", "By length of the reference", "words", "sentences"],
    ["rarest", "By the rarest word of the reference", "occurrences in the training text", "sentences"],
    ["words", "Reference words found in the translations", "occurrences in the training text", "words"],
  ].filter(([name]) => groups[name].length);
  const places = charts.map(([name, title, , unit]) => {
    const place = el("div", { class: "chart", id: `where-${name}` });
    const small = el("small", {});
    byId("where-charts").append(el("figure", {}, el("figcaption", {}, title, " ", small), place));
    return [place, small];
  });
  const update = () => charts.forEach(([name, , xTitle, unit], i) => {
    const value = name === "words" ? "found" : byId("where-metric").value;
    places[i][1].textContent = name === "words" ? "per cent" : value === "chrF" ? "chrF, mean over sentences" : value;
    keep(places[i][0], () => groupSpec({ rows: groups[name], value, xTitle, unit, systems, format: value === "length ratio" ? ".3f" : ".1f" }));
  });
  byId("where-metric").addEventListener("change", update);
  update();
}

// --- classes -------------------------------------------------------------------------------------

const MOST_CLASSES = 40; // of a matrix that can be looked at

// Shades each cell by its share of its row; the diagonal, which is right, in another colour.
function matrix({ scores, confusion }) {
  const names = scores.map((row) => row.class);
  const cell = (count, i, j) => {
    const share = count / Math.max(scores[i].count, 1);
    const shade = `background: color-mix(in srgb, var(${i === j ? "--lack" : "--mark"}) ${Math.round(100 * share)}%, transparent)`;
    return el("td", { class: "number", ...(count ? { style: shade, title: `${names[i]}, predicted ${names[j]}` } : {}) }, count ? count.toLocaleString("en") : "");
  };
  return el("table", { class: "matrix" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "class, predicted →"), ...names.map((name) => el("th", { scope: "col", class: "number" }, text("bdi", name))))),
    el("tbody", {}, ...confusion.map((row, i) => el("tr", {}, el("th", { scope: "row" }, text("bdi", names[i])), ...row.map((count, j) => cell(count, i, j))))));
}

function classes(report) {
  if (!report.classes.length) return;
  show("classes");
  byId("classes-about").textContent = `Of ${report.split}. Precision: the percentage of predictions of a class that are right; recall: the percentage of its items that are found; F1: their harmonic mean.`;
  const scroll = (label, ...children) => el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, ...children);
  const percent = (value) => (value === null ? null : value.toFixed(1));
  for (const found of report.classes) {
    const rows = found.scores.map((row) => [row.class, percent(row.precision), percent(row.recall), percent(row.f1), row.count, row.predicted]);
    byId("classes-list").append(...(report.classes.length > 1 ? [el("h3", {}, el("bdi", {}, found.name))] : []));
    if (found.confusion && found.scores.length <= MOST_CLASSES) {
      byId("classes-list").append(el("p", {}, "Each row has the items of a class, by what they were predicted to be."), scroll("Confusion matrix", matrix(found)));
    } else if (found.confusions.length) {
      byId("classes-list").append(scroll("Confusions", table(["class", "predicted", "count"], found.confusions)));
    }
    byId("classes-list").append(el("details", {}, el("summary", {}, "Scores of each class"),
      scroll("Scores of each class", table(["class", "precision", "recall", "F1", "count", "predicted"], rows))));
  }
}

// --- examples that are not text ------------------------------------------------------------------

function gallery(report) {
  if (!report.gallery.length) return;
  show("gallery");
  const all = report.gallery.flatMap(({ examples }) => examples);
  byId("gallery-about").textContent = all.some((e) => e.caption)
    ? "Good and bad examples of the split, with the model's predictions."
    : "Examples of the split with their labels and the model's predictions: first wrong predictions, the most confident first, then some right ones.";
  if (all.some((e) => e.looked)) byId("gallery-about").append(" Bright and red regions in the picture beside each example are those that the prediction draws on most (attention rollout through all layers).");
  for (const { name, examples } of report.gallery) {
    const figures = examples.map((e) => {
      const wrong = !e.right;
      const sure = e.probability === undefined ? "" : `, ${number(100 * e.probability, 3)} %`;
      const pictures = [e.picture, e.looked].filter(Boolean).map((src, i) => el("img", { src, alt: i ? "attention map" : `example ${e.line}` }));
      const said = e.caption ? [text("bdi", e.caption)] : wrong ? [el("mark", { class: "lack" }, text("bdi", e.hypothesis)), sure, el("br"), "is ", text("bdi", e.reference)] : [text("bdi", e.hypothesis), sure];
      const file = e.file ? [el("br"), el("small", { title: e.file }, text("bdi", e.file.split("/").slice(-2).join("/")))] : [];
      return el("figure", e.caption ? { class: "drawn" } : {}, el("div", { class: "pictures" }, ...pictures), el("figcaption", {}, ...said, ...file));
    });
    byId("gallery-list").append(...(report.gallery.length > 1 ? [el("h3", {}, el("bdi", {}, name))] : []), el("div", { class: "gallery" }, ...figures));
  }
}

// --- curves --------------------------------------------------------------------------------------

const curvesOf = ({ validations, nats }) => [
  ["loss", "train", "Training loss", nats ? "with label smoothing, if any, nats per token" : ""],
  ["validation_loss", "validation", "Validation loss", nats ? "nats per token" : ""],
  ...Object.entries(validations).map(([name, title]) => [name, "validation", title, name === "validation_bleu" ? "greedy search" : ""]),
  ["learning_rate", "train", "Learning rate", ""],
  ["grad_norm", "train", "Gradient norm", "mean since the previous row"],
  ["busiest_expert", "train", "Load of the busiest expert", "over the mean of its layer’s"],
  ["noise_scale", "train", "Noise scale of the gradient", "target tokens"],
  ["target_tokens_per_s", "rate", "Target tokens per second", "without validation and saving"],
];

function curves(report) {
  const { runs } = report;
  const trained = runs.filter((run) => !run.again);
  const charts = curvesOf(report).filter(([name, table_]) => trained.some((run) => run.curves[table_][name].some((v) => v !== null)));
  if (!charts.length) return;
  show("curves");
  const on = new Set(trained.map((run) => runs.indexOf(run)));
  if (trained.length > 8) for (const i of on) if (i > 5) on.delete(i);
  byId("switches").append(...trained.map((run) => {
    const i = runs.indexOf(run);
    const box = el("input", { type: "checkbox" });
    box.checked = on.has(i);
    box.addEventListener("change", () => { if (box.checked) on.add(i); else on.delete(i); update(); });
    return el("label", {}, box, swatch(i), el("bdi", {}, run.training));
  }));
  byId("switches").hidden = trained.length < 2;
  const places = charts.map(([name, , title, about]) => {
    const place = el("div", { class: "chart", id: `curve-${name}` });
    byId("curve-charts").append(el("figure", {}, el("figcaption", {}, title, el("small", {}, about ? `, ${about}` : "")), place));
    return place;
  });
  function update() {
    const [across, logX, logY] = [byId("across").value, byId("log-x").checked, byId("log-y").checked];
    charts.forEach(([name, table_], i) => keep(places[i], () => {
      const series = [...on].sort((a, b) => a - b).map((n) => ({ number: n, name: runs[n].training, rows: rowsOf(runs[n].curves[table_], across, name, logX, logY) })).filter((s) => s.rows.length);
      return curveSpec({ series, xTitle: { step: "step", tokens: "target tokens", minutes: "minutes" }[across], y: name === "learning_rate" ? ".1~e" : ",.4~g", logX, logY, points: table_ === "validation" || series.every((s) => s.rows.length < 2), height: 210 });
    }));
  }
  for (const id of ["across", "log-x", "log-y"]) byId(id).addEventListener("change", update);
  update();
  phases(report);
}

function rowsOf(columns, across, name, logX, logY) {
  const rows = columns[name].map((y, i) => ({ x: columns[across][i], y }));
  return rows.filter(({ x, y }) => y !== null && (!logX || x > 0) && (!logY || y > 0));
}

function phases({ runs }) {
  const rows = runs.flatMap((run) => Object.entries(run.seconds).map(([activity, seconds], place) => ({
    run: run.training, activity, seconds, place, total: spent(run), all: `${number(spent(run), 3)} s`, share: seconds / spent(run) })));
  if (!rows.length) return;
  const place = el("div", { class: "chart" });
  byId("phases").append(el("figure", {}, el("figcaption", {}, "Time by activity", el("small", {}, ", with start-up and compilation in the first step; minutes of steps elsewhere exclude them")), place));
  keep(place, () => phaseSpec(rows));
}

// --- sweeps --------------------------------------------------------------------------------------

function sweepSection({ sweep }) {
  if (!sweep) return;
  show("sweep");
  const { fields, scores: measured, published, by, greater_is_better: greater } = sweep;
  const rows = sweep.rows.map((row, id) => ({ id, ...row, values: { ...row.settings, ...row.measured, ...row.published } }));
  const unfinished = rows.filter((row) => row.state !== "finished").length;
  byId("sweep-about").append(text("p", `${rows.length} points that differ in ${fields.join(", ")}${unfinished ? `; ${unfinished} not finished` : ""}. ${sweep.verdict.why} In the chart below the table, each line leads from the fields of a point to its score: the stronger its colour, the better. Point at a line, or choose its row, to highlight it.`));
  const differing = fields.filter((f) => (f !== "variant" || fields.length === 1) && new Set(rows.map((row) => row.values[f])).size > 1);
  const lines = byId("sweep-lines");
  keep(lines, () => parallelSpec(rows, [...differing, by], by, greater, lines.clientWidth));
  const names = fields.includes("variant") ? ["variant"] : fields; // the fields of a variant come last
  const cost = ["parameters", "minutes", "minutes in all"].filter((name) => measured.includes(name));
  const columns = [...names, ...measured.filter((name) => name === by), ...measured.filter((name) => name !== by && !cost.includes(name)), ...published, ...cost, "state", ...fields.filter((f) => !names.includes(f))];
  const value = (row, column) => (column === "state" ? row.state : row.values[column]);
  const place = byId("sweep-table");
  let sorted = [by, greater ? -1 : 1]; // column, direction
  function pick(row, line) {
    for (const other of place.querySelectorAll("tr.chosen")) other.classList.remove("chosen");
    line.classList.add("chosen");
    drawn.get(lines)?.signal("picked", row.id).runAsync();
    byId("sweep-command").replaceChildren(el("h3", {}, row.name), ...copied(row.command));
  }
  function update() {
    const [column, sign] = sorted;
    const order = [...rows].sort((a, b) => {
      const [x, y] = [value(a, column), value(b, column)];
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
    });
    const head = columns.map((name) => {
      const button = el("button", { type: "button" }, name === "minutes" ? "minutes of steps" : name);
      button.addEventListener("click", () => { sorted = [name, sorted[0] === name ? -sorted[1] : 1]; update(); place.querySelectorAll("th button")[columns.indexOf(name)].focus(); });
      const th = el("th", { scope: "col", ...(typeof value(order[0], name) === "number" ? { class: "number" } : {}) }, button);
      if (name === column) th.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      if (name === column) button.append(sign > 0 ? " ▲" : " ▼");
      return th;
    });
    const body = order.map((row) => {
      const button = el("button", { type: "button" }, "show");
      const line = el("tr", {}, ...columns.map((name) => {
        const v = value(row, name);
        return typeof v === "number" ? el("td", { class: "number" }, number(v, fields.includes(name) ? 6 : 4)) : text("td", v ?? "–");
      }), el("td", {}, button));
      button.addEventListener("click", () => pick(row, line));
      return line;
    });
    place.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...head, el("th", { scope: "col" }, "line and command"))), el("tbody", {}, ...body)));
  }
  update();
}

// --- all of it -----------------------------------------------------------------------------------

async function read() {
  const packed = Uint8Array.from(atob(byId("data").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

const report = await read();
byId("title").textContent = report.title;
document.title = `${report.title}: report`;
byId("made").textContent = `Report generated by transformer_jax, ${report.made}`;
sweepSection(report);
abstracts(report);
scores(report);
where(report);
sentenceSection(report);
classes(report);
gallery(report);
curves(report);
for (const section of document.querySelectorAll("main > section:not([hidden])")) {
  byId("sections").append(el("li", {}, el("a", { href: `#${section.id}` }, section.querySelector("h2").textContent)));
}
document.querySelectorAll(".scroll, .chart.wide").forEach(cued);
document.documentElement.dataset.ready = "yes";
