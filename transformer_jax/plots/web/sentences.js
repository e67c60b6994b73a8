// The list of sentences: ordering, search, marked differences, and attention.

const PAGE = 8;

function sentenceSection(report) {
  const { sentences, systems, picked } = report;
  if (!sentences.length) return;
  show("translations");
  const byLine = new Map(sentences.map((s) => [s.line, s]));
  const state = { order: "worst", system: 0, text: "", count: PAGE };
  const words = (s) => s.reference.length;
  const score = (s, i = state.system) => s.systems[i].chrF;
  const gain = (s) => score(s) - score(s, 0);
  const sorted = (...keys) => [...sentences].sort((a, b) => {
    for (const key of keys) if (key(a) !== key(b)) return key(a) - key(b);
    return a.line - b.line;
  });
  const longest = (s) => -words(s);
  const orders = {
    worst: ["the worst", () => sorted(score, longest)],
    best: ["the best", () => sorted((s) => -score(s), longest)],
    random: ["a random sample", () => picked.random.map((i) => byLine.get(i + 1)).filter(Boolean)],
    gains: ["the largest gains over the first run", () => sorted((s) => -gain(s))],
    losses: ["the largest losses against the first run", () => sorted(gain)],
    file: ["all, in file order", () => sentences],
  };

  byId("order").append(...Object.entries(orders)
    .filter(([name]) => systems.length > 1 || !["gains", "losses"].includes(name))
    .map(([name, [title]]) => el("option", { value: name }, title)));
  byId("system").append(...systems.map((s, i) => el("option", { value: i }, s.name)));
  byId("system-label").hidden = systems.length < 2;
  byId("translations-about").append(...aboutSentences(report));

  function update() {
    const wanted = state.text.toLocaleLowerCase();
    const has = (text) => text.toLocaleLowerCase().includes(wanted);
    const rows = orders[state.order][1]().filter((s) => !wanted || has(s.source) || has(s.reference) || s.systems.some((t) => has(t.hypothesis)));
    byId("found").textContent = wanted ? `${rows.length.toLocaleString("en")} found` : "";
    byId("list").replaceChildren(...rows.slice(0, state.count).map((s) => sentence(s, systems, state.system)));
    byId("more").hidden = rows.length <= state.count;
  }
  const on = (id, event, change) => byId(id).addEventListener(event, (e) => { state.count = PAGE; change(e.target.value); update(); });
  on("order", "change", (value) => { state.order = value; });
  on("system", "change", (value) => { state.system = Number(value); });
  on("search", "input", (value) => { state.text = value.trim(); });
  byId("more").addEventListener("click", () => { state.count += 3 * PAGE; update(); });
  update();
}

function aboutSentences({ sentences, left_out, split }) {
  const all = (sentences.length + left_out).toLocaleString("en");
  const about = [`${all} sentences of ${split}, ranked by chrF. `, el("mark", {}, "Underlined like this"),
    ": not in the reference at this position. ", el("mark", { class: "lack" }, "Dotted"), ": in the reference, missing from the translation."];
  const stored = sentences.some((s) => s.systems.some((t) => t.attention));
  about.push(stored ? " A button opens the attention of the best, the worst and the random sentences; transformer-jax plot attention plots that of any other." : " No attention is stored: eval.py stores it for a single model, not for an ensemble.");
  if (left_out) about.push(` ${left_out.toLocaleString("en")} of them are left out to keep this page small.`);
  return about;
}

function sentence(s, systems, system) {
  const results = s.systems.map((t) => `${systems.length > 1 ? `${systems[s.systems.indexOf(t)].name}: ` : ""}chrF ${number(t.chrF, 3)}, BLEU ${number(t.BLEU, 3)}`);
  const body = el("dl", {},
    el("dt", {}, "source"), text("dd", s.source),
    el("dt", {}, "reference"), marked(s.reference, s.systems[system].missing, "lack"),
    ...s.systems.flatMap((t, i) => [
      systems.length > 1 ? text("dt", systems[i].name) : el("dt", {}, "translation"),
      marked(t.hypothesis, t.extra, ""),
    ]));
  const buttons = s.systems.flatMap((t, i) => (t.attention ? [attentionButton(t.attention, systems.length > 1 ? systems[i].name : "")] : []));
  return el("article", {}, el("header", {}, `line ${s.line.toLocaleString("en")}  ·  ${results.join("  ·  ")}`), body, ...buttons.flat());
}

// A text with the words of these numbers, from 0, marked.
function marked(line, numbers, kind) {
  const which = new Set(numbers);
  const parts = [];
  line.trim().split(/\s+/).forEach((word, i) => {
    if (i) parts.push(" ");
    parts.push(which.has(i) ? el("mark", kind ? { class: kind } : {}, word) : word);
  });
  return el("dd", { dir: "auto" }, ...parts);
}

function attentionButton(attention, name) {
  const place = el("div", { class: "attention" });
  place.hidden = true;
  const button = el("button", { type: "button", "aria-expanded": "false" }, "Attention", ...(name ? [": ", el("bdi", {}, name)] : []));
  button.addEventListener("click", () => {
    place.hidden = !place.hidden;
    button.setAttribute("aria-expanded", String(!place.hidden));
    if (!place.hidden && !place.childElementCount) attentionView(place, attention);
  });
  return [button, " ", place];
}

function attentionView(place, attention) {
  const { weights } = attention;
  const layer = el("select", {}, ...weights.map((_, i) => el("option", { value: i }, `${i + 1} of ${weights.length}`)));
  layer.value = weights.length - 1;
  const head = el("select", {}, el("option", { value: "" }, "mean of all"),
    ...weights[0].map((_, i) => el("option", { value: i }, `${i + 1} of ${weights[0].length}`)));
  const chart = el("div", { class: "chart wide", tabindex: "0", role: "region", "aria-label": "Attention weights: target pieces in rows, source pieces in columns" });
  const update = () => keep(chart, () => attentionSpec(attention, Number(layer.value), head.value === "" ? null : Number(head.value)));
  for (const select of [layer, head]) select.addEventListener("change", update);
  place.append(el("div", { class: "controls" }, el("label", {}, "Decoder layer ", layer), el("label", {}, "head ", head)), chart);
  update();
}
