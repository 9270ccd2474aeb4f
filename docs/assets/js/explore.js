// The crossover widget: its controls, the address that holds its state, and what readings.js says of it.

import { readings } from "./readings.js";

const SITE = new URL("../../", import.meta.url);
const SORRY = "The widget's numbers could not be loaded. What stands here is its first state.";
const SIZES = ["T", "K", "N"];
const NAMES = ["gpu", ...SIZES, "tile", "bytes"];

const widgets = new Map(); // section → its widget

class Explore {
  constructor(root) {
    this.root = root;
    this.page = location.pathname;
    this.status = root.querySelector(".explore-status");
    this.listening = new AbortController();
    this.start();
  }

  async start() {
    try {
      const response = await fetch(new URL(this.root.dataset.explore, SITE));
      if (!response.ok) throw new Error(`${response.url}: ${response.status}`);
      this.data = await response.json();
    } catch (error) {
      console.warn(error);
      this.status.textContent = SORRY;
      return;
    }
    if (!this.root.isConnected) return;
    this.listen();
    this.root.querySelector(".explore-controls fieldset").disabled = false;
    this.apply(location.search);
    this.root.dataset.live = "";
  }

  listen() {
    const { signal } = this.listening;
    const on = (name, handle) => this.root.addEventListener(name, handle, { signal });
    on("input", ({ target }) => this.entered(target));
    on("change", ({ target }) => this.chosen(target));
    on("click", ({ target }) => this.pressed(target.closest("[data-do]")?.dataset.do));
    this.root.addEventListener("toggle", ({ target }) => this.revealed(target), { signal, capture: true });
  }

  entered({ dataset, value, validity }) {
    if (dataset.slide) this.change({ [dataset.slide]: this.sizeAt(dataset.slide, Number(value)) });
    else if (dataset.size && value && validity.valid) this.change({ [dataset.size]: Number(value) });
  }

  chosen({ dataset, name, value }) {
    if (dataset.size) this.change({ [dataset.size]: this.within(dataset.size, value) });
    else if (name === "preset" && value) {
      const sizes = value.split(",").map(Number);
      this.change(Object.fromEntries(SIZES.map((size, at) => [size, sizes[at]])));
    } else if (name === "gpu" || name === "tile") this.change({ [name]: value });
    else if (name === "bytes") this.change({ bytes: Number(value) });
  }

  async pressed(what) {
    if (what === "reset") {
      this.change({ ...this.data.default });
      this.say("Reset.");
    } else if (what === "copy") {
      try {
        await navigator.clipboard.writeText(this.address().href);
        this.say("Link copied.");
      } catch {
        this.remember();
        this.say("The address bar holds the link.");
      }
    }
  }

  revealed(details) {
    const prompt = details.closest("[data-state]");
    if (!prompt || !details.open) return;
    const choice = prompt.querySelector("input:checked");
    const verdict = !choice ? "" : choice.value === prompt.dataset.right ? "As you said. " : "Not as you said. ";
    prompt.querySelector("[data-verdict]").textContent = verdict;
    prompt.querySelector("[data-shown]").hidden = false;
    this.apply(prompt.dataset.state);
    this.remember();
  }

  say(words) {
    this.status.textContent = words;
    clearTimeout(this.silence);
    this.silence = setTimeout(() => { this.status.textContent = ""; }, 4000);
  }

  // A query's state; what it leaves out or gets wrong is as at first, and keys unknown here are ignored.
  apply(query) {
    const asked = new URLSearchParams(query);
    const state = { ...this.data.default };
    if ((asked.get("v") ?? `${this.data.version}`) === `${this.data.version}`) {
      for (const name of SIZES) {
        if (/^\d+$/.test(asked.get(name) ?? "")) state[name] = this.within(name, asked.get(name));
      }
      if (this.data.gpus.some(({ id }) => id === asked.get("gpu"))) state.gpu = asked.get("gpu");
      if (asked.get("bytes") in this.data.tiles) state.bytes = Number(asked.get("bytes"));
      if (this.data.tiles[state.bytes].some(({ id }) => id === asked.get("tile"))) state.tile = asked.get("tile");
    }
    this.state = state;
    this.render();
  }

  change(some) {
    this.state = { ...this.state, ...some };
    this.render();
    clearTimeout(this.remembering);
    this.remembering = setTimeout(() => this.remember(), 250);
  }

  address() {
    const url = new URL(location.href);
    const known = new URLSearchParams([["v", this.data.version], ...NAMES.map((name) => [name, this.state[name]])]);
    for (const [name, value] of known) url.searchParams.set(name, value);
    return url;
  }

  // Material keeps the scroll position in the state of the history, and changes the address before the page.
  remember() {
    clearTimeout(this.remembering);
    if (location.pathname === this.page) history.replaceState(history.state, "", this.address());
  }

  within(name, value) {
    const [least, most] = this.data.limits[name];
    return Math.max(least, Math.min(most, Math.round(Number(value)) || least));
  }

  // Sliders step through quarter octaves, rounded to what layers have.
  sizeAt(name, octaves) {
    const size = 2 ** octaves;
    const unit = size >= 256 ? 64 : 16;
    return this.within(name, Math.round(size / unit) * unit);
  }

  render() {
    const { show, draw, rows, when } = readings(this.data, this.state);
    for (const element of this.root.querySelectorAll("[data-show]")) {
      const text = show[element.dataset.show];
      if (element.textContent !== text) element.textContent = text;
    }
    for (const element of this.root.querySelectorAll("[data-draw]")) {
      for (const [name, value] of Object.entries(draw[element.dataset.draw] ?? {})) element.setAttribute(name, value);
    }
    for (const element of this.root.querySelectorAll("[data-when]")) element.hidden = !when[element.dataset.when];
    this.root.querySelector("[data-rows]").replaceChildren(...rows.map(tableRow));
    this.control();
  }

  control() {
    const find = (selector) => this.root.querySelector(selector);
    for (const name of SIZES) {
      const value = this.state[name];
      const slide = find(`[data-slide=${name}]`);
      const field = find(`[data-size=${name}]`);
      if (slide !== document.activeElement || this.sizeAt(name, Number(slide.value)) !== value) {
        slide.value = Math.log2(value);
      }
      slide.setAttribute("aria-valuetext", `${name} ${value} ${this.data.dimensions[name]}`);
      if (Number(field.value) !== value) field.value = value;
    }
    for (const name of ["gpu", "tile", "bytes"]) find(`[name=${name}]`).value = this.state[name];
    const preset = find("[name=preset]");
    preset.value = SIZES.map((name) => this.state[name]).join(",");
    if (preset.selectedIndex < 0) preset.value = "";
  }

  remove() {
    this.listening.abort();
    clearTimeout(this.remembering);
    clearTimeout(this.silence);
  }
}

function tableRow([split, ...cells]) {
  const row = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = split;
  row.append(head, ...cells.map((text) => {
    const cell = document.createElement("td");
    cell.textContent = text;
    return cell;
  }));
  return row;
}

function mount() {
  for (const [root, widget] of widgets) {
    if (root.isConnected) continue;
    widget.remove();
    widgets.delete(root);
  }
  for (const root of document.querySelectorAll("[data-explore]")) {
    if (!widgets.has(root)) widgets.set(root, new Explore(root));
  }
}

// Material announces every page it swaps in on document$.
if (window.document$) window.document$.subscribe(mount);
else mount();
