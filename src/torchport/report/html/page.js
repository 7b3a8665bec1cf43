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
