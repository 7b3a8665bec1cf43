// Runs the page's script over a page's calls in the least of a document: `node calls_table.mjs PAGE SCRIPT`.
import fs from "node:fs";

const [page, script] = process.argv.slice(2).map((path) => fs.readFileSync(path, "utf8"));
const stored = page.split("<pre id=calls hidden>")[1].split("</pre>")[0];

class Element {
  children = [];
  style = {};
  dataset = {};
  on = {};
  textContent = "";
  scrollTop = 0;
  clientHeight = 480;
  value = "";
  hidden = true;
  append(...more) { this.children.push(...more); }
  replaceChildren(...all) { this.children = all; }
  addEventListener(name, what) { this.on[name] = what; }
  querySelector() { return (this.body ??= new Element()); }
  querySelectorAll() {
    return (this.buttons ??= ["calls", "score", "error", "apart"].map((by) => Object.assign(new Element(), { dataset: { by } })));
  }
}

const elements = {};
for (const name of ["calls", "calls-box", "calls-filter", "calls-count", "calls-all"]) elements[name] = new Element();
elements.calls.textContent = stored.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
globalThis.document = {
  body: { classList: { add() {} } },
  getElementById: (name) => elements[name] ?? null,
  createElement: () => new Element(),
};
const said = [];
const note = (what, start) => {
  const rows = elements["calls-box"].body.children;
  const first = rows[1] && rows[1].children.map((cell) => cell.textContent);
  const milliseconds = performance.now() - start;
  said.push({ what, milliseconds, count: elements["calls-count"].textContent, rows: rows.length, first });
};
let start = performance.now();
new Function(script)();
note("first", start);
for (const words of ["op12 layers.7", "nothing-like-it", ""]) {
  elements["calls-filter"].value = words;
  start = performance.now();
  elements["calls-filter"].on.input();
  note(words, start);
}
start = performance.now();
elements["calls-box"].buttons[1].on.click();
note("score", start);
elements["calls-box"].scrollTop = 28 * 50_000;
start = performance.now();
elements["calls-box"].on.scroll();
note("scroll", start);
console.log(JSON.stringify({ hidden: elements["calls-all"].hidden, said }));
