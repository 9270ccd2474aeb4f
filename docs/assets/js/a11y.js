// What Material leaves out: a name for the search dialog, a way into wide tables for the keyboard, and a word to
// whoever opened a file of the site, where browsers refuse to load modules and data.
const FROM_FILE = "Opened from a file, this chart stays a picture: a web server, such as python -m http.server, makes it live.";

document$.subscribe(() => {
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
  requestAnimationFrame(() => {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) {
      if (!box.closest(".table-scroll")) box.tabIndex = 0;
    }
  });
});

// Material announces no page there, and swaps none.
if (location.protocol === "file:") {
  for (const area of document.querySelectorAll("figure.chart .chart-area")) {
    const says = document.createElement("p");
    says.className = "chart-says";
    says.textContent = FROM_FILE;
    area.after(says);
  }
}
