// The reader's choice of a recording: its numbers, claims, charts and tables in the place of the default's.

const SITE = new URL("../../", import.meta.url);
const NAME = "recording"; // of the choice in an address and in the session
const FACTS = ".fact[data-key]:not(.fact--lesson)";
// What cannot follow: pictures of the default's own device, traces and results.
const FIXED = "figure.drawing:not(#drawing-strides), figure.timeline, figure.trap, [data-fixed]";
const ABSENT = { value: null, text: "not measured", note: "this recording does not hold that point" };
const SORRY = "That recording could not be loaded. ";

const files = new Map(); // recording → its numbers and its parts of pages
const mounted = new WeakSet();

function load(name) {
  if (!files.has(name)) {
    const asked = Promise.all(["facts.json", "page.json"].map(async (file) => {
      const response = await fetch(new URL(`assets/rendered/${name}/${file}`, SITE));
      if (!response.ok) throw new Error(`${response.url}: ${response.status}`);
      return response.json();
    }));
    asked.catch(() => files.delete(name));
    files.set(name, asked);
  }
  return files.get(name);
}

class Choice {
  constructor(root) {
    this.root = root;
    this.page = location.pathname;
    this.default = this.shown = root.dataset.default;
    this.select = root.querySelector("select");
    this.back = root.querySelector("button");
    this.names = [...this.select.options].map(({ value }) => value);
    root.dataset.live = "";
    this.select.addEventListener("change", () => this.choose(this.select.value));
    this.back.addEventListener("click", () => {
      this.choose(this.default);
      this.select.focus();
    });
    const asked = new URLSearchParams(location.search).get(NAME);
    const wanted = [asked, recall(), this.default].find((name) => this.names.includes(name));
    if (wanted !== this.default) this.choose(wanted);
    else if (asked !== null) this.remember();
  }

  // The latest choice counts, whichever file comes first.
  async choose(name) {
    this.wanted = this.select.value = name;
    try {
      const [numbers, parts] = await load(name);
      if (this.wanted !== name || !this.root.isConnected) return;
      this.show(name, numbers, parts);
      this.say();
      this.remember();
    } catch (error) {
      console.warn(error);
      if (this.wanted !== name) return;
      this.select.value = this.shown;
      this.say(SORRY);
    }
  }

  show(name, numbers, parts) {
    this.shown = name;
    const other = name !== this.default;
    this.back.hidden = !other;
    const inside = (element) => !element.closest(FIXED);
    for (const claim of document.querySelectorAll(".claim[data-claim]")) {
      claim.innerHTML = numbers.claims[claim.dataset.claim].html;
    }
    for (const word of document.querySelectorAll("[data-verdict-of]")) {
      word.textContent = word.dataset.verdict = numbers.claims[word.dataset.verdictOf].verdict;
    }
    for (const old of [...document.querySelectorAll(FACTS)].filter(inside)) old.replaceWith(fact(old, numbers));
    for (const box of document.querySelectorAll("[data-table]")) {
      box.innerHTML = parts.tables[box.dataset.table];
    }
    for (const figure of document.querySelectorAll("figure.chart[data-chart]")) {
      if (inside(figure)) chart(figure, name, other, parts.charts);
    }
    for (const part of document.querySelectorAll(FIXED)) {
      note(part, other && "This part shows the default recording.");
    }
  }

  say(before = "") {
    this.root.querySelector(".recording-says").textContent = before + this.select.selectedOptions[0].dataset.says;
  }

  // Material keeps the scroll position in the state of the history, and changes the address before the page.
  remember() {
    const kept = this.shown === this.default ? null : this.shown;
    try {
      if (kept) sessionStorage.setItem(NAME, kept);
      else sessionStorage.removeItem(NAME);
    } catch { /* the address alone remembers */ }
    if (location.pathname !== this.page) return;
    const url = new URL(location.href);
    if (kept) url.searchParams.set(NAME, kept);
    else url.searchParams.delete(NAME);
    url.search = url.search.replaceAll("%2F", "/");
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }
}

function recall() {
  try {
    return sessionStorage.getItem(NAME);
  } catch {
    return null;
  }
}

function fact({ dataset: { key } }, { facts, record }) {
  const { value, text, note } = facts[key] ?? ABSENT;
  const made = document.createElement(value === null ? "span" : "data");
  made.className = value === null ? "fact fact--missing" : "fact";
  made.dataset.key = key;
  if (value !== null) made.value = value;
  made.title = [value !== null && record, note].filter(Boolean).join("; ");
  made.textContent = text;
  return made;
}

// charts.js draws anew when the address of a figure's chart changes.
function chart(figure, name, other, charts) {
  const id = figure.id.replace("chart-", "");
  const { title, caption, table, reason } = charts[id];
  figure.hidden = reason !== undefined;
  note(figure, reason && `Chart not measured: ${reason}.`, "afterend");
  if (figure.hidden) return;
  const [, before] = figure.dataset.chart.match(/rendered\/(.+)\//);
  figure.querySelector(".chart-title").textContent = title;
  figure.querySelector("figcaption").textContent = caption;
  figure.querySelector(".chart-recording").textContent = name;
  const box = figure.querySelector(".table-scroll");
  box.innerHTML = table;
  box.ariaLabel = `${title}, as a table`;
  for (const link of figure.querySelectorAll(".chart-files a")) {
    link.setAttribute("href", link.getAttribute("href").replaceAll(before, name));
  }
  figure.toggleAttribute("data-other", other);
  figure.dataset.chart = `assets/rendered/${name}/${id}.json`;
}

function note(part, words, where = "beforeend") {
  const old = where === "beforeend" ? part.lastElementChild : part.nextElementSibling;
  if (old?.matches(".recording-note")) old.remove();
  if (!words) return;
  const made = document.createElement("p");
  made.className = "recording-note";
  made.textContent = words;
  part.insertAdjacentElement(where, made);
}

function mount() {
  const root = document.querySelector(".recording");
  if (!root || mounted.has(root)) return;
  mounted.add(root);
  new Choice(root);
}

// Material announces every page it swaps in on document$.
if (window.document$) window.document$.subscribe(mount);
else mount();
