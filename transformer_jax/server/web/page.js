"use strict";
// Text from a model or a person is inserted as text only, never as mark-up.
const $ = (id) => document.getElementById(id);
const state = { lines: [], shown: [], asking: null, timer: 0, model: null };

function say(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
}

function headers() {
  const key = sessionStorage.getItem("key");
  return { "content-type": "application/json", ...(key ? { authorization: "Bearer " + bytes(key) } : {}) };
}

// Headers are bytes, which the server reads as UTF-8.
function bytes(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

async function ask(path, body, signal) {
  const options = { headers: headers(), signal };
  if (body !== undefined) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  const response = await fetch(path, options);
  if (response.ok) return response;
  const error = new Error(`The server answered ${response.status}.`);
  error.status = response.status;
  error.again = Number(response.headers.get("retry-after") || 0);
  try { error.message = (await response.json()).error.message; } catch { /* no JSON: keep the status */ }
  throw error;
}

function failed(error, again) {
  if (error.name === "AbortError") return;
  if (error.status === 401) {
    $("door").hidden = false;
    $("key").focus();
    return say(sessionStorage.getItem("key") ? "That is not the key of this server." : "", true);
  }
  if (error.again && again) {
    const seconds = Math.min(error.again, 10);
    state.timer = setTimeout(again, 1000 * seconds);
    return say(`Busy: retrying in ${seconds} s.`);
  }
  const text = error.status ? error.message : "The server cannot be reached.";
  say(text[0].toUpperCase() + text.slice(1), true);
}

function language(code) {
  try { return new Intl.DisplayNames(["en"], { type: "language" }).of(code) || code; } catch { return code; }
}

// --- translation ---

const words = (text) => [...text.matchAll(/\S+/g)].map((m) => [m.index, m.index + m[0].length]);

function grow(area) {
  area.style.height = "auto";
  area.style.height = area.scrollHeight + "px";
}

function typed() {
  const text = $("source").value, limit = state.model.limits.characters;
  grow($("source"));
  highlight(-1, new Set());
  $("count").textContent = text.length > limit / 2 ? `${text.length} of ${limit} characters per line` : "";
  clearTimeout(state.timer);
  if (state.asking) state.asking.abort();
  say("");
  if (!text.trim()) { state.lines = []; return draw(); }
  $("target").classList.add("waiting");
  state.timer = setTimeout(translate, 250);
}

async function translate() {
  const lines = $("source").value.split("\n"), asking = state.asking = new AbortController();
  const began = performance.now(), model = state.model;
  const slow = setTimeout(() => say("Translating …"), 400);
  try {
    const body = { texts: lines, n_best: Math.min(model.hypotheses, 4), alignments: model.aligns };
    const found = (await (await ask("api/translate", body, asking.signal)).json()).results;
    state.lines = found.map((row, i) => ({ source: lines[i], all: row.translations, rank: 0 }));
    say(`${((performance.now() - began) / 1000).toFixed(2)} s`);
    draw();
  } catch (error) {
    failed(error, translate);
  } finally {
    clearTimeout(slow);
    if (state.asking === asking) $("target").classList.remove("waiting");
  }
}

function draw() {
  $("target").replaceChildren(...state.lines.map((line, number) => {
    const paragraph = document.createElement("p"), found = line.all[line.rank];
    let end = 0;
    words(found.text).forEach(([from, to], word) => {
      paragraph.append(found.text.slice(end, from));
      const span = document.createElement("span");
      span.className = "word";
      span.textContent = found.text.slice(from, to);
      span.dataset.line = number;
      span.dataset.word = word;
      paragraph.append(span);
      end = to;
    });
    paragraph.append(found.text.slice(end));
    return paragraph;
  }));
  alternatives();
}

function current() {
  const at = $("source").value.slice(0, $("source").selectionStart).split("\n").length - 1;
  return Math.min(at, state.lines.length - 1);
}

function alternatives() {
  const number = current(), line = state.lines[number];
  $("others").hidden = !line || !line.source.trim() || line.all.length < 2;
  if ($("others").hidden) return $("list").replaceChildren();
  $("list").replaceChildren(...line.all.map((found, rank) => {
    const item = document.createElement("li"), button = document.createElement("button");
    const text = document.createElement("span"), score = document.createElement("span");
    text.textContent = found.text || "(nothing)";
    score.className = "quiet";
    if (found.log_prob !== null) score.textContent = `${(100 * Math.exp(found.log_prob)).toPrecision(2)} %`;
    score.title = "probability of exactly this translation";
    button.type = "button";
    button.append(text, score);
    button.setAttribute("aria-current", rank === line.rank);
    button.addEventListener("click", () => {
      line.rank = rank;
      draw();
      $("list").children[rank].firstChild.focus();
    });
    item.append(button);
    return item;
  }));
}

// Highlight the source words of a line that are linked, in a layer behind the source text.
function highlight(number, sources) {
  const behind = $("behind"), text = $("source").value;
  behind.replaceChildren();
  if (number < 0 || !sources.size) return;
  const start = text.split("\n").slice(0, number).join("\n").length + (number ? 1 : 0);
  const line = text.split("\n")[number] || "";
  let end = 0;
  words(line).forEach(([from, to], word) => {
    if (!sources.has(word)) return;
    behind.append(text.slice(end, start + from));
    const mark = document.createElement("mark");
    mark.textContent = text.slice(start + from, start + to);
    behind.append(mark);
    end = start + to;
  });
  behind.append(text.slice(end));
}

function link(number, source, target) {
  const line = state.lines[number];
  const pairs = line && line.source === $("source").value.split("\n")[number]
    ? line.all[line.rank].alignments || [] : [];
  const chosen = pairs.filter(([s, t]) => (source === null ? t === target : s === source));
  const targets = new Set(chosen.map((pair) => pair[1])), sources = new Set(chosen.map((pair) => pair[0]));
  if (target !== null) targets.add(target);
  for (const span of $("target").querySelectorAll(".word"))
    span.classList.toggle("linked", Number(span.dataset.line) === number && targets.has(Number(span.dataset.word)));
  highlight(number, sources);
}

function pointed(event) {
  const span = event.target.closest(".word");
  if (span) link(Number(span.dataset.line), null, Number(span.dataset.word));
  else link(-1, null, null);
}

function caret() {
  if (document.activeElement !== $("source")) return;
  alternatives();
  const before = $("source").value.slice(0, $("source").selectionStart), number = before.split("\n").length - 1;
  const column = before.length - before.lastIndexOf("\n") - 1;
  const line = $("source").value.split("\n")[number];
  const word = words(line).findIndex(([from, to]) => from <= column && column <= to);
  if (word >= 0) link(number, word, null); else link(-1, null, null);
}

// The arrow keys move from word to word of the translation.
function stepped(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const spans = [...$("target").querySelectorAll(".word")];
  if (!spans.length) return;
  const at = spans.findIndex((span) => state.at && span.dataset.line === state.at.dataset.line && span.dataset.word === state.at.dataset.word);
  const place = at < 0 ? (step > 0 ? 0 : spans.length - 1) : (at + step + spans.length) % spans.length;
  state.at = spans[place];
  link(Number(state.at.dataset.line), null, Number(state.at.dataset.word));
}

// --- generation ---

async function write() {
  if (state.asking) return;
  const asking = state.asking = new AbortController(), text = $("text");
  const temperature = Number($("temperature").value), tokens = Number($("tokens").value) || 1;
  $("go").disabled = true;
  $("stop").disabled = false;
  text.replaceChildren();
  say("Writing …");
  const body = { prompt: $("prompt").value, max_tokens: Math.min(tokens, state.model.limits.tokens), stream: true,
    ...(temperature ? { temperature } : {}) };
  const began = performance.now();
  try {
    const response = await ask("api/generate", body, asking.signal);
    let count = 0;
    for await (const found of events(response)) {
      if (found.error) throw Object.assign(new Error(found.error.message), { status: 500 });
      const part = document.createElement("span");
      if (found.prompt) { part.className = "begun"; part.textContent = found.prompt; text.append(part); }
      if (found.text) text.append(found.text);
      if (found.tokens) count = found.tokens;
    }
    const seconds = (performance.now() - began) / 1000;
    say(`${count} tokens in ${seconds.toFixed(2)} s`);
  } catch (error) {
    if (error.name === "AbortError") say("Stopped."); else failed(error);
  } finally {
    state.asking = null;
    $("go").disabled = false;
    $("stop").disabled = true;
  }
}

// --- conversation ---

const history = [];

function shown(role, text) {
  const entry = document.createElement("p");
  entry.className = role;
  entry.textContent = text;
  $("messages").append(entry);
  entry.scrollIntoView({ block: "nearest" });
  return entry;
}

async function send() {
  const text = $("message").value.trim();
  if (state.asking || !text) return;
  const asking = state.asking = new AbortController(), model = state.model;
  const entries = [shown("user", text), shown("assistant", "")], began = performance.now();
  $("message").value = "";
  $("send").disabled = true;
  $("halt").disabled = false;
  say("Writing …");
  const messages = [...history, { role: "user", content: text }];
  let said = "", whole = false;
  try {
    const body = { model: model.model, messages, temperature: Number($("warmth").value), stream: true };
    for await (const found of events(await ask("v1/chat/completions", body, asking.signal))) {
      if (found.error) throw Object.assign(new Error(found.error.message), { status: 500 });
      for (const choice of found.choices) said += choice.delta.content || "";
      entries[1].textContent = said;
    }
    whole = true;
    say(`${((performance.now() - began) / 1000).toFixed(2)} s`);
  } catch (error) {
    if (error.name === "AbortError") { whole = true; say("Stopped."); } else failed(error);
  } finally {
    // A message without an answer would stand before another message: it is given back instead.
    if (whole) history.push(messages.at(-1), { role: "assistant", content: said });
    else { entries.forEach((entry) => entry.remove()); $("message").value = text; }
    state.asking = null;
    $("send").disabled = false;
    $("halt").disabled = true;
    $("message").focus();
  }
}

function anew() {
  if (state.asking) state.asking.abort();
  history.length = 0;
  $("messages").replaceChildren();
  say("");
  $("message").focus();
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (held + value).split("\n\n");
    held = parts.pop();
    for (const part of parts) if (part !== "data: [DONE]") yield JSON.parse(part.slice(6));
  }
}

// --- start ---

function begin(model) {
  state.model = model;
  $("door").hidden = true;
  say("");
  if (model.translates) {
    $("about").textContent = `${language(model.source)} to ${language(model.target)}`;
    $("from").textContent = language(model.source);
    $("into").textContent = language(model.target);
    $("source").lang = model.source;
    $("target").lang = model.target;
    $("hint").textContent = model.aligns ? "Point to a word to see its source" : "";
    $("translation").hidden = false;
    $("source").focus();
    typed();
  } else if (!model.generates) {
    $("about").textContent = `This model (${model.verb}) has no page: send texts or files to /api/predict`;
  } else if (model.chats) {
    $("about").textContent = "Chat model";
    $("chat").hidden = false;
    $("message").focus();
  } else {
    $("about").textContent = "Language model";
    const { tokens, positions } = model.limits;
    $("tokens").max = Math.min(tokens, positions || tokens);
    $("tokens").value = Math.min(128, tokens, positions ? Math.floor(positions / 2) : tokens);
    $("generation").hidden = false;
    $("prompt").focus();
  }
  document.documentElement.dataset.ready = "";
}

async function start() {
  try {
    begin(await (await ask("api/model")).json());
  } catch (error) {
    if (error.status === 503) { say("The model is being prepared …"); setTimeout(start, 1000); } else failed(error);
  }
}

$("source").addEventListener("input", typed);
document.addEventListener("selectionchange", caret);
$("target").addEventListener("pointerover", pointed);
$("target").addEventListener("pointerleave", () => link(-1, null, null));
$("target").addEventListener("keydown", stepped);
$("target").addEventListener("blur", () => link(-1, null, null));
$("clear").addEventListener("click", () => { $("source").value = ""; typed(); $("source").focus(); });
$("copy").addEventListener("click", async () => {
  const text = state.lines.map((line) => line.all[line.rank].text).join("\n");
  try { await navigator.clipboard.writeText(text); say("Copied."); } catch { say("Copying is not allowed.", true); }
});
$("prompt").addEventListener("input", () => grow($("prompt")));
$("temperature").addEventListener("input", () => { $("degrees").textContent = Number($("temperature").value).toFixed(1); });
$("go").addEventListener("click", write);
$("stop").addEventListener("click", () => state.asking && state.asking.abort());
$("warmth").addEventListener("input", () => { $("warmth-degrees").textContent = Number($("warmth").value).toFixed(1); });
$("send").addEventListener("click", send);
$("halt").addEventListener("click", () => state.asking && state.asking.abort());
$("anew").addEventListener("click", anew);
$("message").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
  if (event.key === "Escape" && state.asking) state.asking.abort();
});
document.addEventListener("keydown", (event) => {
  if ($("generation").hidden) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write();
  if (event.key === "Escape" && state.asking) state.asking.abort();
});
$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("key").value);
  start();
});
start();
