// Adds a filter to the findings. Without scripts the page shows them all.
document.body.classList.add("scripted");
const filter = document.getElementById("filter");
if (filter) {
  const rows = [...document.querySelectorAll("#findings tr[data-path]")];
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = (row.dataset.path + " " + row.textContent).toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    for (const group of document.querySelectorAll("#findings tbody"))
      group.hidden = !group.querySelector("tr[data-path]:not([hidden])");
    if (words.length) for (const fold of document.querySelectorAll("#findings details")) fold.open = true;
    document.getElementById("count").textContent = words.length ? `${shown} of ${rows.length}` : "";
  });
}

// The calls of a comparison: up to hundreds of thousands, of which only those in sight are in the page.
const store = document.getElementById("calls");
if (store) {
  const { strings, rows } = JSON.parse(store.textContent);
  const lower = strings.map((text) => text.toLowerCase());
  const box = document.getElementById("calls-box");
  const words = document.getElementById("calls-filter");
  const body = box.querySelector("tbody");
  const HEIGHT = 28; // of a row, as page.css has it
  const AROUND = 20;
  const TEXTS = 6; // the first column that is a place in `strings`
  let shown = rows;
  const cell = (value) => {
    const made = document.createElement("td");
    made.textContent = value === null ? "" : value;
    return made;
  };
  const space = (count) => {
    const made = document.createElement("tr");
    made.style.height = `${count * HEIGHT}px`;
    return made;
  };
  const line = (row) => {
    const made = document.createElement("tr");
    if (row[2]) made.className = "off";
    const [operator, phase, module, source, why] = row.slice(TEXTS).map((place) => strings[place]);
    made.append(...[row[0], row[1], operator, phase, module, row[3], why || row[4], row[5], source].map(cell));
    return made;
  };
  const draw = () => {
    const first = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - AROUND);
    const part = shown.slice(first, first + Math.ceil(box.clientHeight / HEIGHT) + 2 * AROUND);
    body.replaceChildren(space(first), ...part.map(line), space(shown.length - first - part.length));
  };
  const choose = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const places = wanted.map((word) => new Set(lower.flatMap((text, place) => (text.includes(word) ? [place] : []))));
    shown = rows.filter((row) => places.every((known) => row.slice(TEXTS).some((place) => known.has(place))));
    document.getElementById("calls-count").textContent = `${shown.length} of ${rows.length}`;
    box.scrollTop = 0;
    draw();
  };
  words.addEventListener("input", choose);
  box.addEventListener("scroll", draw);
  const columns = { calls: 1, score: 3, error: 4, apart: 5 };
  for (const button of box.querySelectorAll("button"))
    button.addEventListener("click", () => {
      const place = columns[button.dataset.by];
      // Infinite is null in JSON, and comes first.
      const size = (row) => (row[place] === null ? (place === 5 ? -1 : Infinity) : row[place]);
      rows.sort(place === 1 ? (a, b) => a[0] - b[0] || a[1] - b[1] : (a, b) => (size(b) === size(a) ? 0 : size(b) - size(a)));
      choose();
    });
  document.getElementById("calls-all").hidden = false;
  choose();
}
