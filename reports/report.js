// Filters and copy buttons. The page is complete without this script.
"use strict";
(() => {
  const form = document.getElementById("filters");
  const cards = [...document.querySelectorAll("[data-verdict]")];
  const rows = [...document.querySelectorAll("table.picture tr[data-case]")];
  const panels = [...document.querySelectorAll(".panel")];
  const count = form.querySelector("output");

  const offer = (name, values) => {
    for (const value of values) form.elements[name].add(new Option(value));
  };
  const targets = cards.flatMap((card) => card.dataset.targets.split(" ").filter(Boolean));
  const number = (target) => Number(target.replace(/\D/g, "")) || Infinity;
  offer("target", [...new Set(targets)].sort((a, b) => number(a) - number(b)));
  offer("verdict", new Set(cards.map((card) => card.dataset.verdict)));

  const chosen = (name) => (form.elements[name] ? form.elements[name].value : "");
  const matches = (card) =>
    card.dataset.text.toLowerCase().includes(chosen("text").trim().toLowerCase()) &&
    (!chosen("target") || card.dataset.targets.split(" ").includes(chosen("target"))) &&
    (!chosen("candidate") || card.dataset.candidate === chosen("candidate")) &&
    (!chosen("verdict") || card.dataset.verdict === chosen("verdict"));

  const apply = () => {
    for (const card of cards) card.hidden = !matches(card);
    const text = chosen("text").trim().toLowerCase();
    const moved = form.elements.moved.checked;
    const told = text && cards.some((card) => !card.hidden);
    for (const row of rows) {
      const named = row.dataset.case.toLowerCase().includes(text);
      const linked = told && [...row.querySelectorAll("a[href^='#']")].some((link) => {
        const card = document.getElementById(link.hash.slice(1));
        return card && card.matches("[data-verdict]") && !card.hidden;
      });
      row.hidden = !(named || linked) || (moved && row.dataset.moved === "0");
    }
    for (const panel of panels) {
      panel.hidden = Boolean(chosen("candidate")) && panel.dataset.candidate !== chosen("candidate");
    }
    const shown = cards.filter((card) => !card.hidden).length;
    count.textContent = `${shown} of ${cards.length} findings and differences shown`;
  };

  // A link to a finding that the filters hide must still lead to it.
  const reveal = () => {
    const card = location.hash && document.getElementById(location.hash.slice(1));
    if (card && card.hidden) {
      form.reset();
      apply();
      card.scrollIntoView();
    }
  };

  form.addEventListener("input", apply);
  form.addEventListener("reset", () => setTimeout(apply));
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", reveal);
  form.hidden = false;
  apply();

  if (navigator.clipboard) {
    for (const code of document.querySelectorAll(".reproduce code")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "copy";
      button.setAttribute("aria-label", `Copy: ${code.textContent}`);
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "copied";
        setTimeout(() => { button.textContent = "copy"; }, 1500);
      });
      code.after(" ", button);
    }
  }
})();
