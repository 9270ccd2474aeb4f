// Shows, of every <figure class="drawing">, the state that its controls choose: all states stand in the page.

const mounted = new WeakSet();

function show(figure, inputs) {
  const chosen = inputs.map((input) => input.value).join(" ");
  for (const part of figure.querySelectorAll("[data-when]")) {
    part.toggleAttribute("hidden", part.dataset.when !== chosen);
  }
  const spoken = figure.querySelector("[data-spoken]:not([hidden])")?.dataset.spoken;
  for (const slider of inputs.filter((input) => input.type === "range")) {
    slider.setAttribute("aria-valuetext", spoken);
    slider.nextElementSibling.textContent = spoken;
  }
}

function mount() {
  for (const figure of document.querySelectorAll("figure.drawing")) {
    const controls = figure.querySelector(".drawing-controls");
    if (!controls || mounted.has(figure)) continue;
    mounted.add(figure);
    controls.hidden = false;
    const inputs = [...controls.querySelectorAll("select, input")];
    controls.addEventListener("input", () => show(figure, inputs));
    show(figure, inputs); // the browser may have restored an earlier choice
  }
}

// Material announces every page it swaps in on document$.
if (window.document$) window.document$.subscribe(mount);
else mount();
