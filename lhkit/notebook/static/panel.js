// The browser's half of lhkit's chat panel and confirm card. It shows HTML that render.py wrote,
// sends presses, and decides nothing but what belongs to keys and focus.

const EARLY_MS = 400; // a key meant for the editor must not approve a tool

function node(tag, className, attributes = {}) {
  const made = document.createElement(tag);
  made.className = className;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function button(className, press) {
  const made = node("button", `lhkit-button ${className}`, { type: "button" });
  made.addEventListener("click", press);
  return made;
}

/** The list of messages: kept equal to the kernel's by numbered patches. */
function messageList(model, list) {
  let revision = -1;

  function set(index, html) {
    while (list.children.length <= index) list.append(node("div", "lhkit-slot"));
    const slot = list.children[index];
    const wasOpen = slot.firstElementChild?.open === true;
    slot.innerHTML = html; // from render.py, which escapes everything foreign
    if (wasOpen && slot.firstElementChild.tagName === "DETAILS") slot.firstElementChild.open = true;
  }

  function append(index, text) {
    list.children[index]?.querySelector(".lhkit-stream")?.append(text); // a text node
  }

  function cut(length) {
    while (list.children.length > length) list.lastElementChild.remove();
  }

  function keepingTheEnd(change) {
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 48;
    change();
    if (isAtEnd) list.scrollTop = list.scrollHeight;
  }

  return {
    whole() {
      if (model.get("revision") === revision) return;
      revision = model.get("revision");
      const fragments = model.get("fragments");
      keepingTheEnd(() => {
        cut(fragments.length);
        fragments.forEach((html, index) => set(index, html));
      });
    },
    patch(message, resync) {
      if (message.revision <= revision) return; // contained in what we have
      if (message.revision > revision + 1) return resync(); // something was missed
      revision = message.revision;
      keepingTheEnd(() => {
        for (const [kind, at, what] of message.changes) {
          if (kind === "set") set(at, what);
          else if (kind === "append") append(at, what);
          else cut(at);
        }
      });
    },
  };
}

/** The open question: who may press it, and when. */
function confirmCard(model, root) {
  const armedAt = new Map(); // when a card may be approved
  const answered = new Set();
  let wantsInput = false; // the focus goes back to where the user writes

  const openCard = () => root.querySelector('.lhkit-confirm[data-state="open"]');

  function answer(card, how) {
    const id = card.dataset.card;
    if (answered.has(id)) return;
    if (how === "run" && performance.now() < (armedAt.get(id) ?? Infinity)) return;
    answered.add(id);
    card.querySelectorAll("button").forEach((each) => each.setAttribute("aria-disabled", "true"));
    wantsInput = root.contains(document.activeElement);
    model.send({ type: "answer", card: id, how });
  }

  function focusRun(card) {
    const typing = root.querySelector(".lhkit-input");
    const isTyping = typing && document.activeElement === typing && typing.value !== "";
    if (card.isConnected && card.dataset.state === "open" && !isTyping) {
      card.querySelector(".lhkit-run").focus({ preventScroll: true });
      card.scrollIntoView({ block: "nearest" });
    }
  }

  return {
    openCard,
    /** True once after an answer from in here has been taken. */
    isSettled() {
      const isIt = wantsInput && !openCard();
      wantsInput &&= !isIt;
      return isIt;
    },
    /** Take notice of a card that has just appeared. */
    look() {
      const card = openCard();
      if (!card || armedAt.has(card.dataset.card)) return;
      armedAt.set(card.dataset.card, performance.now() + EARLY_MS);
      requestAnimationFrame(() => focusRun(card));
      setTimeout(() => focusRun(card), 200); // Shift+Enter moves the focus on after us
    },
    /** A key while a card is young is meant for something else: wait until the typing is over. */
    someKey() {
      const card = openCard();
      const at = card && armedAt.get(card.dataset.card);
      if (at > performance.now()) armedAt.set(card.dataset.card, performance.now() + EARLY_MS);
    },
    key(event) {
      const card = openCard();
      if (!card) return false;
      if (event.key === "Escape" && !event.isComposing) {
        if (!event.repeat) answer(card, "escape");
        return true;
      }
      const how = event.target.closest?.("[data-answer]")?.dataset.answer;
      if (!how || !["Enter", " "].includes(event.key)) return false;
      if (!event.repeat && event.isTrusted) answer(card, how);
      return true;
    },
    click(event) {
      const pressed = event.target.closest?.("[data-answer]");
      if (pressed && event.isTrusted) answer(pressed.closest(".lhkit-confirm"), pressed.dataset.answer);
    },
  };
}

/** The row to write in, and the row of actions. */
function inputRows(model, root, list) {
  const input = node("textarea", "lhkit-input", { rows: "2" });
  const status = node("div", "lhkit-status", { role: "status" });
  let isSent = false; // until the kernel says that it is busy

  function send() {
    const text = input.value;
    if (!text.trim() || isBusy() || model.get("controls").needs_opt_in) return;
    input.value = "";
    isSent = true;
    model.send({ type: "send", text });
    list.scrollTop = list.scrollHeight; // whoever speaks wants to see the answer
    paint();
  }

  const isBusy = () => isSent || model.get("controls").busy === true;
  const tell = (type, more = {}) => () => model.send({ type, ...more });

  const sendButton = button("lhkit-primary lhkit-send", send);
  const stopButton = button("lhkit-stop", tell("stop"));
  const actions = [
    [button("lhkit-quiet lhkit-retry", tell("retry")), "retry"],
    [button("lhkit-quiet lhkit-clear", tell("clear")), "clear"],
    [button("lhkit-quiet lhkit-markdown-file", tell("export", { format: "markdown" })), "markdown"],
    [button("lhkit-quiet lhkit-json-file", tell("export", { format: "json" })), "json"],
    [button("lhkit-quiet lhkit-scenario", tell("scenario")), "scenario"],
  ];
  const locale = node("select", "lhkit-locale");
  for (const each of model.get("locales")) locale.append(new Option(each, each));
  locale.addEventListener("change", () => model.send({ type: "locale", value: locale.value }));

  input.addEventListener("keydown", (event) => {
    const isComposing = event.isComposing || event.keyCode === 229; // a Korean syllable in the making
    if (event.key !== "Enter" || event.shiftKey || isComposing) return;
    event.preventDefault();
    if (!event.repeat) send();
  });

  function paint() {
    const { busy, can_retry, needs_opt_in } = model.get("controls");
    input.disabled = needs_opt_in === true;
    sendButton.disabled = isBusy() || needs_opt_in === true;
    stopButton.disabled = !isBusy();
    root.classList.toggle("lhkit-busy", isBusy());
    for (const [each, name] of actions) {
      each.disabled = name === "retry" ? isBusy() || !can_retry : busy === true;
    }
    locale.disabled = busy === true;
    status.innerHTML = model.get("status"); // from render.py
  }

  function words() {
    const labels = model.get("labels");
    input.placeholder = labels.placeholder;
    input.setAttribute("aria-label", labels.placeholder);
    sendButton.textContent = labels.send;
    stopButton.textContent = labels.stop;
    for (const [each, name] of actions) each.textContent = labels[name];
    locale.setAttribute("aria-label", labels.locale);
    for (const option of locale.options) option.text = labels[`locale_${option.value}`] ?? option.value;
    locale.value = model.get("locale");
    root.lang = model.get("locale");
  }

  const buttons = node("div", "lhkit-buttons");
  buttons.append(sendButton, stopButton);
  const row = node("div", "lhkit-write");
  row.append(input, buttons);
  const tools = node("div", "lhkit-actions");
  tools.append(...actions.map(([each]) => each), locale);
  root.append(status, row, tools);
  return { input, paint, words, settled() { isSent = false; paint(); } };
}

function saveFile({ name, text }) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function copyText(pressed, labels) {
  const text = pressed.closest(".lhkit-message").querySelector(".lhkit-text").innerText;
  await navigator.clipboard.writeText(text);
  pressed.textContent = labels.copied;
  setTimeout(() => { pressed.textContent = labels.copy; }, 1500);
}

function render({ model, el }) {
  const view = Math.random().toString(36).slice(2);
  // Lab's shortcuts (such as Shift+Enter and Escape) stay out of the panel.
  const root = node("div", "lhkit-chat", { "data-lm-suppress-shortcuts": "true" });
  const list = node("div", "lhkit-list", { role: "log", "aria-label": model.get("labels").messages });
  root.append(list);
  const rows = model.get("has_input") ? inputRows(model, root, list) : null;
  root.classList.toggle("lhkit-alone", rows === null);
  const messages = messageList(model, list);
  const card = confirmCard(model, root);

  const ready = () => model.send({ type: "ready", view });
  const look = () => {
    card.look();
    if (rows && card.isSettled()) rows.input.focus({ preventScroll: true });
  };
  const onWhole = () => { messages.whole(); look(); };
  const onMessage = (message) => {
    if (message.type === "patch") {
      messages.patch(message, ready);
      rows?.settled();
      look();
    } else if (message.type === "file") saveFile(message);
  };
  const onKey = (event) => {
    event.stopPropagation(); // Lab would take Shift+Enter, and run the cell
    if (card.key(event)) event.preventDefault();
  };
  const onKeyUp = (event) => { // Firefox presses a button when the space bar comes up
    if (event.key === " " && event.target.closest?.("[data-answer]")) event.preventDefault();
  };
  const onClick = (event) => {
    card.click(event);
    const pressed = event.target.closest("[data-action]");
    if (pressed?.dataset.action === "copy") copyText(pressed, model.get("labels"));
    else if (pressed) model.send({ type: pressed.dataset.action });
  };

  const onAnyKey = (event) => {
    if (!["Shift", "Control", "Alt", "Meta"].includes(event.key)) card.someKey();
  };
  document.addEventListener("keydown", onAnyKey, true);
  root.addEventListener("keydown", onKey);
  root.addEventListener("keyup", onKeyUp);
  root.addEventListener("click", onClick);
  model.on("msg:custom", onMessage);
  model.on("change:revision", onWhole);
  const onPaint = () => rows?.paint();
  const onWords = () => { rows?.words(); };
  model.on("change:controls", () => rows?.settled());
  model.on("change:status", onPaint);
  model.on("change:labels", onWords);
  model.on("change:locale", onWords);

  el.append(root);
  rows?.words();
  rows?.paint();
  onWhole();
  ready();
  return () => {
    document.removeEventListener("keydown", onAnyKey, true);
    model.send({ type: "gone", view });
  };
}

export default { render };
