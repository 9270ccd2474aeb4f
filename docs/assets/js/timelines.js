// Lets the reader of the SM timeline choose a shape: every picture but the first is a file, fetched when asked for.

const SITE = new URL("../../", import.meta.url);
const SORRY = "That shape's picture could not be loaded. The table on this page holds its numbers.";

const mounted = new WeakSet();

async function load(figure, shape) {
  const response = await fetch(new URL(`${figure.dataset.timelines}/timeline-${shape}.html`, SITE));
  if (!response.ok) throw new Error(`${response.url}: ${response.status}`);
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

// The chosen launch stays chosen if the shape has it: a split factor, or stream-K.
function show(figure, found) {
  const split = figure.querySelector("input:checked").value;
  const same = found.querySelector(`input[value="${split}"]`);
  if (same) same.checked = true;
  figure.querySelector(".timeline-body").replaceWith(found.querySelector(".timeline-body"));
  // Not replaced itself: it is the live region that speaks its new content.
  figure.querySelector(".timeline-says").replaceChildren(...found.querySelector(".timeline-says").childNodes);
}

function excuse(figure) {
  const says = figure.querySelector(".timeline-says");
  const sorry = document.createElement("p");
  sorry.textContent = SORRY;
  says.querySelector("p:not([data-state])")?.remove();
  says.append(sorry);
}

function offer(figure) {
  const controls = figure.querySelector(".timeline-controls");
  const select = controls.querySelector("select");
  let shown = select.value;
  controls.hidden = false;
  select.addEventListener("change", async () => {
    const wanted = select.value;
    try {
      const found = await load(figure, wanted);
      if (select.value !== wanted) return;
      show(figure, found);
      shown = wanted;
    } catch (error) {
      console.warn(error);
      if (select.value !== wanted) return;
      select.value = shown;
      excuse(figure);
    }
  });
}

function mount() {
  for (const figure of document.querySelectorAll("figure.timeline[data-timelines]")) {
    if (mounted.has(figure)) continue;
    mounted.add(figure);
    offer(figure);
  }
}

// Material announces every page it swaps in on document$.
if (window.document$) window.document$.subscribe(mount);
else mount();
