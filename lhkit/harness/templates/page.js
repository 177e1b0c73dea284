"use strict";
(() => {
  // A transcript waits as text in <noscript>; it becomes elements when its sample is first opened.
  // That text is escaped by the writer of this file, like everything else here.
  const samples = [...document.querySelectorAll("#samples > details.lhr-sample")];
  const open = (sample) => {
    const waiting = sample.querySelector(":scope > noscript");
    if (waiting) {
      const place = document.createElement("div");
      place.innerHTML = waiting.textContent;
      texts.set(sample, searchable(sample));
      waiting.replaceWith(place);
    }
  };
  const texts = new WeakMap();
  const escaped = (words) =>
    words.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")
      .replaceAll('"', "&#34;").replaceAll("'", "&#39;");
  const searchable = (sample) => {
    if (!texts.has(sample)) {
      const inner = sample.querySelector(":scope > noscript");
      const told = inner ? inner.textContent.replace(/<(b|th)\b[^>]*>[^<]*<\/\1>|<[^>]*>/g, " ") : "";
      const line = escaped(sample.querySelector("summary").textContent);
      texts.set(sample, `${line} ${told}`.normalize("NFC").toLowerCase());
    }
    return texts.get(sample);
  };
  const form = document.getElementById("filters");
  const fits = (sample, wish) =>
    (!wish.ac || sample.dataset.ac === wish.ac) &&
    (!wish.verdict || sample.dataset.verdict === wish.verdict) &&
    (!wish.tag || (sample.dataset.tags || "").includes(` ${wish.tag} `)) &&
    (!wish.words || searchable(sample).includes(wish.words));
  const filter = () => {
    const wish = Object.fromEntries(new FormData(form));
    wish.words = escaped(wish.words.trim().normalize("NFC").toLowerCase());
    let shown = 0;
    for (const sample of samples) {
      sample.hidden = !fits(sample, wish);
      shown += sample.hidden ? 0 : 1;
    }
    document.getElementById("shown").textContent = `${shown} / ${samples.length}`;
  };
  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.matches("details.lhr-sample")) {
      target.hidden = false;
      target.open = true;
      target.scrollIntoView();
    }
  };
  for (const sample of document.querySelectorAll("details.lhr-sample")) {
    sample.addEventListener("toggle", () => sample.open && open(sample));
  }
  form.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", follow);
  filter();
  follow();
})();
