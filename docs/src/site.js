// Search, the buttons that copy commands, and lists that are folded where a window is narrow. Everything else works without it.
"use strict";

for (const details of document.querySelectorAll("details[data-wide]")) {
  const wide = matchMedia(`(min-width: ${details.dataset.wide})`);
  const fold = () => (details.open = wide.matches);
  wide.addEventListener("change", fold);
  fold();
}
const nav = document.querySelector("nav");
const current = nav.querySelector("[aria-current]");
if (current) nav.scrollTop = current.offsetTop - nav.clientHeight / 2;

for (const code of document.querySelectorAll("pre > code:not(.language-message, .language-output)")) {
  const button = element("button", "Copy");
  button.type = "button";
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(code.textContent.trimEnd());
    } catch {
      // Pages of a server without TLS have no clipboard.
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  };
  const [box, pre] = [element("div", button), code.parentElement];
  box.className = "copy";
  pre.replaceWith(box);
  box.append(pre);
}

// A long command is wrapped between its words, and its next lines are indented.
for (const code of document.querySelectorAll("code.language-sh")) {
  const word = (part) => (part.trim() ? element("i", part) : part);
  const line = (text) => element("span", ...text.split(/( +)/).map(word), "\n");
  code.replaceChildren(...code.textContent.trimEnd().split("\n").map(line));
}

const form = document.querySelector("form[role=search]");
const [input, results] = form.children;
form.hidden = false;
form.onsubmit = (event) => {
  event.preventDefault();
  results.querySelector("a")?.click();
};
input.onfocus = () => {
  input.onfocus = null;
  const script = document.createElement("script");
  script.src = document.documentElement.dataset.root + "search.js";
  script.onload = search;
  document.head.append(script);
};
input.oninput = search;
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") results.replaceChildren();
  if (event.key !== "/" || event.ctrlKey || event.metaKey || document.activeElement === input) return;
  event.preventDefault();
  input.focus();
});
document.addEventListener("click", (event) => event.target === input || results.replaceChildren());

// Sections with all of the words; those with words in their titles, or with the words as they were typed, come first.
function search() {
  const phrase = input.value.toLowerCase().trim();
  const words = phrase.match(/\S+/g) ?? [];
  const found = [];
  if (!words.length || !globalThis.searchIndex) return results.replaceChildren();
  for (const [path, title, sections] of searchIndex) {
    for (const [anchor, heading, body] of sections) {
      const [inTitle, inHeading, inBody] = [title, heading, body].map((text) => (word) => text.toLowerCase().includes(word));
      if (!words.every((word) => inTitle(word) || inHeading(word) || inBody(word))) continue;
      const counts = [inHeading, inTitle, inBody].map((inText) => words.filter(inText).length);
      const score = 4 * counts[0] + 2 * counts[1] + counts[2] + 8 * inBody(phrase);
      found.push({ score, path, anchor, body, name: heading === title ? title : `${title} › ${heading}` });
    }
  }
  found.sort((one, other) => other.score - one.score);
  const items = found.slice(0, 20).map(({ path, anchor, body, name }) => {
    const link = element("a", element("b", name), excerpt(body, words));
    link.href = `${document.documentElement.dataset.root}${path}#${anchor}`;
    return element("li", link);
  });
  results.replaceChildren(...(items.length ? items : [element("li", "No section has all of these words.")]));
}

function excerpt(body, words) {
  const at = words.map((word) => body.toLowerCase().indexOf(word)).find((at) => at >= 0) ?? 0;
  const begin = body.lastIndexOf(" ", Math.max(0, at - 40)) + 1;
  return element("span", (begin ? "… " : "") + body.slice(begin, begin + 160));
}

function element(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}
