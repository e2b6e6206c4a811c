// The list of interventions. All that it shows was written by models or comes from a data set: it becomes text nodes,
// and MathML of the elements and attributes that the index names, but never markup.
"use strict";

const PAGE = 50;
const MATHML = "http://www.w3.org/1998/Math/MathML";
const FACETS = ["outcome", "cause", "arm", "verdict", "topic"];
const DEFAULTS = {
  i: "", page: "1", q: "", from: "", to: "", sort: "newest", tex: "",
  ...Object.fromEntries(FACETS.map((facet) => [facet, ""])),
};
const SEARCHED = new Set(
  ["question", "answer", "why", "text", "feedback", "hint", "reason", "diagnosis", "critique", "topic"],
);
// Control characters, text reordering and lone surrogates are written out, so that a reader sees what is there.
const HIDDEN = /([\p{Cc}\p{Cs}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069])/u;

const WITHHELD = {
  control: "Withheld by lot: this group was re-rolled on the plain question.",
  generic: "Withheld by lot: this group was re-rolled under the fixed hint.",
};
const ORIGINS = {
  accepted: "a draft was judged HIGH",
  fallback: "no draft was accepted; this is the fixed safe hint",
  format: "the fixed hint about the form of the answer; the mentor was not asked",
  not_asked: "the mentor was not asked",
  failed: "no hint: the mentor failed or the hint could not be used",
  dropped: "the group left the full queue before its turn",
};
const GRADERS = {
  rules: "by a rule, the judge was not asked",
  judge: "by the judge",
  unreadable: "the judge's reply could not be read",
  skipped: "without a judge",
};

const byId = (id) => document.getElementById(id);
const words = (name) => name.replaceAll("_", " ");
const number = (value) => value.toLocaleString("en");
const isThere = (value) => value !== null && value !== undefined && value !== false;
const figure = (value) => (value === null ? "unknown" : String(Number(value.toFixed(4))));

let index; // columns, one entry for each listed intervention
let chunks; // script elements with the details of some interventions each
let state = { ...DEFAULTS };
let found = []; // positions of the interventions that pass the filters, in their order
let search = { query: "", hits: null, share: 1 };
let formulas = {}; // MathML of the formulas of the open intervention, by their source
let shownNow = null; // what the article shows, so that a filter does not draw it anew
const unpacked = new Map(); // the chunks that were opened last

/** An element; children are nodes or strings, and what is null, undefined or false is left out. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (isThere(value)) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter(isThere));
  return made;
}

async function unpack(element) {
  const packed = atob(element.textContent);
  const bytes = new Uint8Array(packed.length);
  for (let k = 0; k < packed.length; k++) bytes[k] = packed.charCodeAt(k);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** The list is there before the details behind it in the file are. */
async function allChunks() {
  if (document.readyState === "loading") {
    await new Promise((resolve) => document.addEventListener("DOMContentLoaded", resolve, { once: true }));
  }
  chunks ??= [...document.querySelectorAll("script.chunk")];
  return chunks;
}

/** The details of the intervention at a position of the index. */
async function details(position) {
  const chunk = (await allChunks()).findLast((element) => Number(element.dataset.first) <= position);
  if (!unpacked.has(chunk)) {
    unpacked.set(chunk, unpack(chunk));
    if (unpacked.size > 4) unpacked.delete(unpacked.keys().next().value);
  }
  const { items, formulas } = await unpacked.get(chunk);
  return { ...items[position - Number(chunk.dataset.first)], formulas };
}

// ---- Texts

function visible(text) {
  return text.replaceAll("\r\n", "\n").split(HIDDEN).map((part, k) => {
    if (k % 2 === 0 || part === "\n" || part === "\t") return part;
    const code = part.codePointAt(0).toString(16);
    return el("span", { class: "escape" }, code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`);
  });
}

function mathml(node) {
  if (typeof node === "string") return document.createTextNode(node);
  const [tag, attributes, ...children] = node;
  const made = document.createElementNS(MATHML, index.mathml.tags.includes(tag) ? tag : "mrow");
  for (const [name, value] of Object.entries(attributes)) {
    if (index.mathml.attributes.includes(name)) made.setAttribute(name, value);
  }
  made.append(...children.map(mathml));
  return made;
}

function part(item) {
  if (typeof item === "string") return visible(item);
  if ("gap" in item) return el("span", { class: "gap" }, `… ${number(item.gap)} characters left out …`);
  if (state.tex) return visible(item.tex);
  const math = mathml(formulas[item.tex]);
  return el("span", { class: `formula ${math.getAttribute("display")}`, title: item.tex }, math);
}

const parts = (shown) => (typeof shown === "string" ? [shown] : shown).map(part);
const prose = (shown, kind = "") => el("div", { class: `text ${kind}`, dir: "auto" }, parts(shown));
const badge = (kind, said = words(kind)) => el("span", { class: `badge ${kind}` }, said);
const source = (shown) => (typeof shown === "string" ? shown : shown.map((item) => item.tex ?? item).join(""));

// ---- One intervention

/** Cards side by side; those that are the same in everything share one. */
function cards(items, one, card) {
  const same = new Map();
  items.forEach((item, k) => same.set(JSON.stringify(item), [...(same.get(JSON.stringify(item)) ?? []), k]));
  return el("div", { class: "cards" }, [...same.values()].map((places) => {
    const numbers = places.map((k) => k + 1).join(", ");
    return card(items[places[0]], places.length > 1 ? `${one}s ${numbers}: all the same ` : `${one} ${numbers} `);
  }));
}

function attemptCard(attempt, title) {
  return el("section", { class: "card" },
    el("h5", {}, title, attempt.truncated && badge("low", "cut off at the length limit")),
    prose(attempt.text, "code"),
    el("p", { class: "note" }, `success ${figure(attempt.success)}`),
    attempt.feedback && el("div", { class: "note" }, "the verifier: ", prose(attempt.feedback)));
}

function completionCard(item, title) {
  const fate = item.succeeds ? "succeeds" : item.success === null ? "not scored" : "fails";
  const rewards = Object.entries(item.rewards).map(([name, value]) => [" · ", visible(name), ` ${figure(value)}`]);
  return el("section", { class: item.succeeds ? "card good" : "card" },
    el("h5", {}, title, badge(item.succeeds ? "high" : "low", fate)),
    prose(item.text, "code"),
    el("p", { class: "note" }, `success ${figure(item.success)}`, rewards,
      item.reliance !== null && ` · reliance ${figure(item.reliance)}`));
}

function draftItem(draft, k) {
  const role = draft.role === "repair" ? "repaired" : draft.role;
  const grade = draft.quality === null ? badge("none", "never judged") : badge(draft.quality.toLowerCase(), draft.quality);
  return el("li", {},
    el("h5", {}, `Draft ${k + 1}, ${role}, attempt ${draft.attempt} `, grade, draft.source && ` ${GRADERS[draft.source]}`),
    prose(draft.text),
    draft.critique && prose(draft.critique, "critique"));
}

function hintBlock(guidance, arm) {
  const withheld = WITHHELD[arm];
  const shortened = guidance.shortened ? "; shortened to fit into the context" : "";
  return el("section", { class: withheld ? "lesson withheld" : "lesson" },
    el("h4", {}, "Hint ", badge(guidance.origin), el("span", { class: "note" }, ` ${ORIGINS[guidance.origin]}${shortened}`)),
    withheld && el("p", {}, badge(arm, `arm: ${arm}`), ` ${withheld}`),
    guidance.hint !== null && prose(guidance.hint),
    guidance.reason && prose(guidance.reason, "note"));
}

function callsTable(guidance) {
  const heads = ["agent", "prompt tokens", "completion tokens", "cached", "seconds", "note"];
  const row = (call) => [
    words(call.role), number(call.prompt_tokens), number(call.completion_tokens),
    number(call.cached_tokens), call.seconds.toFixed(2),
    call.replayed ? "replayed from the cache" : call.error === null ? "" : parts(call.error),
  ];
  return el("details", {},
    el("summary", {}, `${guidance.calls.length} calls to the mentor, ${guidance.seconds.toFixed(1)} s`),
    el("div", { class: "wide" }, el("table", {},
      el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, guidance.calls.map((call) => el("tr", {}, row(call).map((cell) => el("td", {}, cell))))))));
}

function laterBlock(later) {
  const told = later.returns.map((item) => el("li", {},
    `Step ${item.step}, ${item.probe ? "in a probe" : "in training"}, without a hint: `,
    badge(item.successes ? "high" : "low", `${item.successes} of ${item.completions} succeed`)));
  const others = later.others.map((other, k) => [k ? ", " : "", el("a", { href: link({ i: other }) }, `#${other}`)]);
  return el("section", {}, el("h4", {}, "The same prompt at other times"),
    el("ul", {}, told, others.length > 0 && el("li", {}, "Other interventions for it: ", others)));
}

function article(position, item) {
  const step = index.steps[position];
  const late = item.collapsed_at !== null && item.collapsed_at !== step ? `, collapsed at step ${item.collapsed_at}` : "";
  const [outcome, cause, arm] = ["outcome", "cause", "arm"].map((facet) => facetName(facet, position));
  const { guidance, later, completions } = item;
  const told = `step ${step}${late} · place ${item.place} · ${index.times[position].replace("T", " ")} UTC`;
  const rolled = `${completions.length} new attempts, ${index.successes[position]} succeed, ${number(item.tokens)} tokens`;
  return [
    el("header", {},
      el("h3", {}, `Intervention ${index.first + position} `, el("span", { class: "note" }, told)),
      el("p", {}, badge(outcome), badge("cause", `cause: ${words(cause)}`), arm && badge(arm, `arm: ${arm}`),
        item.topic !== null && badge("topic", visible(item.topic)))),
    el("h4", {}, "Question"), prose(item.question),
    item.answer !== null && el("details", {}, el("summary", {}, "Reference answer"), prose(item.answer)),
    el("h4", {}, `${item.attempts.length} failed attempts`),
    item.why && prose(item.why, "note"),
    cards(item.attempts, "Attempt", attemptCard),
    guidance && guidance.diagnosis.length > 0 && [
      el("h4", {}, "Diagnosis"),
      el("ul", {}, guidance.diagnosis.map((keyword) => el("li", {}, prose(keyword)))),
    ],
    guidance && guidance.drafts.length > 0 && [
      el("h4", {}, "Drafts and verdicts"),
      el("ol", { class: "drafts" }, guidance.drafts.map(draftItem)),
    ],
    guidance && hintBlock(guidance, arm),
    completions.length > 0 && [el("h4", {}, rolled), cards(completions, "New attempt", completionCard)],
    completions.length === 0 && el("p", { class: "note" }, "Not re-rolled."),
    later.returns.length + later.others.length > 0 && laterBlock(later),
    guidance && guidance.calls.length > 0 && callsTable(guidance),
  ].flat().filter(isThere);
}

async function showDetail(moved) {
  const position = state.i ? Number(state.i) - index.first : found[0] ?? -1;
  const key = `${position} ${state.tex}`;
  if (key === shownNow) return;
  shownNow = key;
  const place = byId("detail");
  if (index.steps[position] === undefined) {
    place.replaceChildren(el("p", { class: "note" }, state.i ? `No intervention ${state.i} is listed here.` : "Nothing to show."));
    return;
  }
  const item = await details(position);
  if (key !== shownNow) return;
  formulas = item.formulas;
  place.replaceChildren(...article(position, item));
  place.dataset.shown = index.first + position;
  if (!moved) return;
  place.focus({ preventScroll: true });
  place.scrollIntoView({ block: "start" });
}

// ---- Filters, list and pages

const facetName = (facet, position) => index.facets[facet].names[index.facets[facet].codes[position]] ?? null;

/** The address of this page with some of its state changed. */
function link(changes) {
  const told = Object.entries({ ...state, ...changes }).filter(([name, value]) => String(value) !== DEFAULTS[name]);
  return `#${new URLSearchParams(told.length ? told : { i: "" })}`;
}

function select() {
  const chosen = FACETS.filter((facet) => state[facet]).map((facet) => index.facets[facet]);
  const codes = FACETS.filter((facet) => state[facet]).map((facet) => index.facets[facet].names.indexOf(state[facet]));
  const [from, to] = [state.from === "" ? -Infinity : Number(state.from), state.to === "" ? Infinity : Number(state.to)];
  const share = (k) => index.successes[k] / Math.max(index.completions[k], 1);
  const orders = {
    newest: (a, b) => b - a,
    oldest: (a, b) => a - b,
    best: (a, b) => share(b) - share(a) || b - a,
    worst: (a, b) => share(a) - share(b) || b - a,
    returned: (a, b) => index.returned[b] - index.returned[a] || b - a,
  };
  found = [...index.steps.keys()].filter((k) =>
    index.steps[k] >= from && index.steps[k] <= to && (!state.q || search.hits[k])
    && chosen.every((facet, n) => facet.codes[k] === codes[n]));
  found.sort(orders[state.sort] ?? orders.newest);
}

function row(position) {
  const i = index.first + position;
  const rolled = index.completions[position];
  const [outcome, arm] = [facetName("outcome", position), facetName("arm", position)];
  return el("li", {}, el("a", { href: link({ i }), "aria-current": String(i) === state.i && "true" },
    el("span", { class: "title", dir: "auto" }, visible(index.titles[position])),
    el("span", { class: "meta" }, badge(outcome), arm && arm !== "hint" && badge(arm),
      `#${i} · step ${index.steps[position]}`,
      rolled > 0 && ` · ${index.successes[position]}/${rolled} succeed`,
      index.returned[position] > 0 && ` · ${index.returned[position] === 2 ? "solved later" : "not solved later"}`)));
}

function showList() {
  select();
  const pages = Math.max(Math.ceil(found.length / PAGE), 1);
  const page = Math.min(Math.max(Math.floor(Number(state.page)) || 1, 1), pages);
  const shown = found.slice((page - 1) * PAGE, page * PAGE);
  byId("rows").replaceChildren(...shown.map(row));
  const searched = search.share < 1 ? `, ${Math.floor(search.share * 100)} % searched` : "";
  byId("found").textContent = `${number(found.length)} of ${number(index.steps.length)} interventions${searched}`;
  const turn = (to, rel, said) =>
    to < 1 || to > pages ? el("span", {}, said) : el("a", { href: link({ page: to }), rel }, said);
  byId("pager").replaceChildren(
    turn(page - 1, "prev", "← previous"), el("span", {}, `page ${number(page)} of ${number(pages)}`),
    turn(page + 1, "next", "next →"));
}

/** All texts of an intervention, formulas as LaTeX. */
function texts(item) {
  return Object.entries(item).flatMap(([name, value]) => {
    if (name === "diagnosis") return value.map(source);
    if (SEARCHED.has(name)) return value === null ? [] : [source(value)];
    if (Array.isArray(value)) return value.flatMap((one) => (one instanceof Object ? texts(one) : []));
    return value instanceof Object ? texts(value) : [];
  });
}

/** Looks for the query in every text, chunk by chunk; the list fills up meanwhile. */
async function runSearch() {
  if (state.q === search.query) return;
  const mine = { query: state.q, hits: new Uint8Array(index.steps.length), share: state.q ? 0 : 1 };
  search = mine;
  if (!mine.query) return;
  const query = mine.query.toLowerCase();
  const all = await allChunks();
  let shownAt = performance.now();
  for (const [done, chunk] of all.entries()) {
    const { items } = await unpack(chunk);
    if (search !== mine) return;
    items.forEach((item, k) => {
      mine.hits[Number(chunk.dataset.first) + k] = texts(item).join("\n").toLowerCase().includes(query);
    });
    mine.share = (done + 1) / all.length;
    if (performance.now() - shownAt < 250 && mine.share < 1) continue;
    showList();
    shownAt = performance.now();
  }
  showDetail(false);
}

// ---- State: filters, page and the open intervention are in the address, so that they can be linked to

function show(moved) {
  runSearch();
  showList();
  showDetail(moved);
}

function readAddress() {
  const hash = location.hash.slice(1);
  if (hash && !hash.includes("=")) return show(false); // a section of the page
  const told = new URLSearchParams(hash);
  const before = state.i;
  state = Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, told.get(name) ?? value]));
  for (const control of byId("filters").elements) {
    if (control.type === "checkbox") control.checked = state[control.name] !== "";
    else if (control.name) control.value = state[control.name];
  }
  return show(state.i !== "" && state.i !== before);
}

function readFilters(event) {
  const control = event.target;
  const value = control.type === "checkbox" ? (control.checked ? "1" : "") : control.value;
  state = { ...state, page: "1", [control.name]: value };
  history.replaceState(null, "", link({}));
  show(false);
}

/** Opens the next or the previous intervention of the list. */
function move(by) {
  const place = found.indexOf(Number(byId("detail").dataset.shown) - index.first) + by;
  if (found[place] === undefined) return;
  location.hash = link({ i: index.first + found[place], page: Math.floor(place / PAGE) + 1 });
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  n: () => byId("pager").querySelector("[rel=next]")?.click(),
  p: () => byId("pager").querySelector("[rel=prev]")?.click(),
  "/": () => byId("filters").q.focus(),
  Escape: () => (byId("rows").querySelector("[aria-current]") ?? byId("rows").querySelector("a"))?.focus(),
};

function onKey(event) {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.ctrlKey || event.metaKey || event.altKey || typing || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
}

function fillFilters() {
  for (const facet of FACETS) {
    const { names, codes } = index.facets[facet];
    const counts = names.map(() => 0);
    codes.forEach((code) => { counts[code] += 1; });
    const said = (name) => (facet === "topic" ? name : words(name));
    const control = byId("filters")[facet];
    control.append(...names.map((name, k) => el("option", { value: name }, `${said(name)} (${number(counts[k])})`)));
    control.closest("label").hidden = names.length === 0 || counts[0] === codes.length;
  }
}

async function main() {
  index = await unpack(byId("index"));
  fillFilters();
  let waiting;
  byId("filters").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(readFilters, event.target.type === "search" ? 250 : 0, event);
  });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", () => { location.hash = "#i="; });
  addEventListener("hashchange", readAddress);
  document.addEventListener("keydown", onKey);
  readAddress();
  document.documentElement.dataset.ready = "true";
}

main();
