"use strict";
(() => {
  // A transcript is text in <noscript> until its sample is opened. The templates have escaped it.
  const samples = [...document.querySelectorAll("#samples > details.lhr-sample")];
  const open = (sample) => {
    const inert = sample.querySelector(":scope > noscript");
    if (inert) {
      const transcript = document.createElement("div");
      transcript.innerHTML = inert.textContent;
      texts.set(sample, searchable(sample));
      inert.replaceWith(transcript);
    }
  };
  const texts = new WeakMap();
  const escaped = (text) =>
    text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")
      .replaceAll('"', "&#34;").replaceAll("'", "&#39;");
  const searchable = (sample) => {
    if (!texts.has(sample)) {
      const inert = sample.querySelector(":scope > noscript");
      const transcript = inert ? inert.textContent.replace(/<(b|th)\b[^>]*>[^<]*<\/\1>|<[^>]*>/g, " ") : "";
      const line = escaped(sample.querySelector("summary").textContent);
      texts.set(sample, `${line} ${transcript}`.normalize("NFC").toLowerCase());
    }
    return texts.get(sample);
  };
  const form = document.getElementById("filters");
  const matches = (sample, query) =>
    (!query.ac || sample.dataset.ac === query.ac) &&
    (!query.verdict || sample.dataset.verdict === query.verdict) &&
    (!query.tag || (sample.dataset.tags || "").includes(` ${query.tag} `)) &&
    (!query.words || searchable(sample).includes(query.words));
  const filter = () => {
    const query = Object.fromEntries(new FormData(form));
    query.words = escaped(query.words.trim().normalize("NFC").toLowerCase());
    let shown = 0;
    for (const sample of samples) {
      sample.hidden = !matches(sample, query);
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
