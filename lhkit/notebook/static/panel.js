// The browser side of lhkit's chat panel and confirmation card: shows the HTML of render.py, sends
// presses, and handles keys and focus.

const EDITING = new Set(["Backspace", "Delete"]);
const YES = new Set(["run", "send"]); // ignored for EARLY_MS, and until all was seen
const OPEN_CARD = '.lhkit-confirm[data-state="open"]';

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

/** The connection to the kernel, which sends "here" to a page that is ready; a restart ends it. */
const WAITING = "waiting", HEARD = "heard", LOST = "lost";

const isEditable = (element) => element?.closest?.("input, textarea, [contenteditable='true']") != null;
const isCharacter = (event) =>
  !event.ctrlKey && !event.metaKey && ([...event.key].length === 1 || event.keyCode === 229);

const isNull = (field) => ((each) => each?.checked === true || each?.selected === true)(nullOf(field));

const valueOf = (field) => (isNull(field) ? null : field.value);

function setValue(field, value) {
  const each = nullOf(field);
  if (value === null) each?.tagName === "OPTION" ? (each.selected = true) : each && (each.checked = true);
  else {
    field.value = value;
    if (each?.tagName === "INPUT") each.checked = false;
  }
}

/** Return the values of a card's fields, by name; of an edited call only those that were changed. */
function fieldsOf(card) {
  const found = new Map(); // not an object: a name may be __proto__
  for (const each of card.querySelectorAll("[name]")) {
    // the browser itself normalises line ends and the like
    if (!isEditing(card) || valueOf(each) !== each.initial) found.set(each.name, valueOf(each));
  }
  return found;
}

const isEditing = (card) => card.querySelector('[data-answer="check"]') !== null;

/** Restore the input and the focus of a card that was rendered again. */
function refill(card, before, focused) {
  const fields = fieldsOf(before), why = card.querySelector("[data-why]");
  for (const each of card.querySelectorAll("[name]")) {
    const kept = fields.get(each.name);
    if (kept === undefined) continue;
    setValue(each, kept);
    if (focused?.name === each.name) each.focus({ preventScroll: true });
  }
  if (!why) return;
  why.value = before.querySelector("[data-why]")?.value ?? "";
  if (focused?.matches("[data-why]")) why.focus({ preventScroll: true });
}

/** Unfold the text behind a button, and return it for the focus. */
function unfold(fold) {
  const rest = fold.nextElementSibling;
  rest.hidden = false;
  fold.hidden = true;
  fold.setAttribute("aria-expanded", "true");
  return rest;
}

/** Matches the unseen parts of a card, in order: a closed fold, or the end of a piece. */
const UNSEEN = '[data-fold]:not([hidden]), [data-end=""]';

const shownIn = (card) => [...card.querySelectorAll(".lhkit-summary")].map((each) => each.textContent).join("\n");

/** Restore the unfolded and seen parts of a card that was rendered again with the same text. */
function seeAgain(card, before) {
  if (shownIn(card) !== shownIn(before)) return;
  const folds = card.querySelectorAll("[data-fold]"), ends = card.querySelectorAll("[data-end]");
  before.querySelectorAll("[data-fold]").forEach((each, i) => each.hidden && folds[i] && unfold(folds[i]));
  before.querySelectorAll("[data-end]").forEach((each, i) => {
    if (ends[i]) ends[i].dataset.end = each.dataset.end;
  });
}

/** The list of messages, synchronised with the kernel by numbered patches. */
function messageList(model, list) {
  let revision = -1;

  function set(index, html) {
    while (list.children.length <= index) list.append(node("div", "lhkit-slot"));
    const slot = list.children[index];
    const wasOpen = slot.firstElementChild?.open === true;
    const asked = slot.querySelector(OPEN_CARD);
    const focused = asked?.contains(document.activeElement) ? document.activeElement : null;
    slot.innerHTML = html; // from render.py, which escapes everything foreign
    const again = slot.querySelector(OPEN_CARD);
    for (const each of again?.querySelectorAll("[name]") ?? []) each.initial = valueOf(each);
    if (asked && again?.dataset.card === asked.dataset.card) {
      seeAgain(again, asked);
      refill(again, asked, focused);
    }
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
      if (message.revision <= revision) return; // already applied
      if (message.revision > revision + 1) return resync(); // a patch is missing
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

/** The open card: which presses count, and when. */
function confirmCard(model, root, line) {
  const armedAt = new Map(); // when a card may be approved
  const shown = new Map(); // the last attempt of a form, by card
  const answered = new Set(); // by card and attempt: an invalid form can be sent again
  let wantsInput = false; // the focus returns to the input
  let typedIn = null; // the element that was typed into last
  let takenFrom = null; // the element that had the focus before Run
  let watched = null; // the card whose ends are observed

  const observer = new IntersectionObserver((found) => {
    for (const each of found.filter((one) => one.isIntersecting)) {
      observer.unobserve(each.target);
      each.target.dataset.end = "seen";
    }
    paintYes();
  });

  /** Enable Run and Send when all of the card was on the screen. */
  function paintYes() {
    const card = openCard();
    if (!card || answered.has(attempt(card))) return;
    const isSeen = !card.querySelector(UNSEEN);
    const yes = card.querySelector(".lhkit-run"), words = card.querySelector(".lhkit-unseen");
    if (!words) return; // the arguments are being edited
    words.hidden = isSeen;
    if (isSeen) for (const name of ["aria-disabled", "aria-describedby"]) yes.removeAttribute(name);
  }

  /** Scroll to the next unseen part, in place of an early yes. */
  function showNext(card) {
    const next = card.querySelector(UNSEEN);
    armedAt.set(card.dataset.card, performance.now() + EARLY_MS);
    if ("fold" in next.dataset) next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "center" });
  }

  const openCard = () => root.querySelector(OPEN_CARD);
  const attempt = (card) => `${card.dataset.card} ${card.dataset.attempt}`;
  const isYoung = (card) => performance.now() < (armedAt.get(card.dataset.card) ?? Infinity);
  const fieldOf = (element) =>
    element?.closest?.(OPEN_CARD) ? element.closest("[name], [data-why]") : null;

  function answer(card, how) {
    if (answered.has(attempt(card)) || line.state !== HEARD) return;
    if (YES.has(how) && isYoung(card)) return;
    if (YES.has(how) && card.querySelector(UNSEEN)) return showNext(card);
    answered.add(attempt(card));
    card.querySelectorAll("button").forEach((each) => each.setAttribute("aria-disabled", "true"));
    wantsInput = root.contains(document.activeElement);
    takenFrom = null;
    const more = {};
    if (["send", "check"].includes(how)) more.fields = Object.fromEntries(fieldsOf(card));
    if (how === "cancel") more.reason = card.querySelector("[data-why]")?.value ?? "";
    model.send({ type: "answer", card: card.dataset.card, attempt: Number(card.dataset.attempt), how, ...more });
  }

  /** Return the first element to focus: an invalid field, a fold, the first field, or Run. */
  const startOf = (card) =>
    card.querySelector('[aria-invalid="true"]:is([name]), [aria-invalid="true"] [name]') ??
    card.querySelector("[data-fold]:not([hidden])") ??
    card.querySelector("[name]") ?? card.querySelector(".lhkit-run");

  function mayTakeFocus(from) {
    if (from?.closest?.(OPEN_CARD)) return false; // another card
    if (from === root.querySelector(".lhkit-input")) return from.value === "";
    return !(isEditable(from) && from === typedIn); // the user is typing code
  }

  function focusRun(card) {
    const from = document.activeElement;
    if (!card.isConnected || card.dataset.state !== "open") return;
    if (mayTakeFocus(from)) {
      takenFrom = isEditable(from) ? from : null;
      startOf(card).focus({ preventScroll: true });
    }
    if (!mayTakeFocus(from) && !root.contains(from)) return;
    const room = Math.min(card.closest(".lhkit-list").clientHeight, window.innerHeight);
    card.scrollIntoView({ block: card.offsetHeight > room ? "start" : "nearest" });
  }

  return {
    openCard,
    close: () => observer.disconnect(),
    /** Return true once after an answer from this card was settled. */
    isSettled() {
      const isIt = wantsInput && !openCard();
      wantsInput &&= !isIt;
      return isIt;
    },
    /** Handle a card that has just appeared. */
    look() {
      const card = openCard();
      if (!card) return;
      if (card.dataset.attempt !== shown.get(card.dataset.card)) {
        const isAgain = shown.has(card.dataset.card);
        shown.set(card.dataset.card, card.dataset.attempt);
        if (isAgain) {
          card.scrollIntoView({ block: "nearest" }); // the list is as high as a form while one is open
          if (isEditing(card)) armedAt.set(card.dataset.card, 0);
          else if (card.querySelector('[data-answer="run"]')) armedAt.set(card.dataset.card, performance.now() + EARLY_MS);
          if (wantsInput) startOf(card).focus();
        }
      }
      if (card !== watched) {
        watched = card;
        observer.disconnect();
        card.querySelectorAll('[data-end=""]').forEach((each) => observer.observe(each));
        paintYes();
      }
      if (armedAt.has(card.dataset.card)) return;
      armedAt.set(card.dataset.card, performance.now() + EARLY_MS);
      requestAnimationFrame(() => focusRun(card));
      setTimeout(() => focusRun(card), 200); // Shift+Enter moves the focus afterwards
    },
    /** Take the focus from another card; keys that are still held are ignored for EARLY_MS. */
    take() {
      const card = openCard();
      if (!card) return;
      armedAt.set(card.dataset.card, performance.now() + EARLY_MS);
      startOf(card).focus({ preventScroll: true });
    },
    /** Extend the waiting time of a new card while the user is typing elsewhere. */
    someKey(event) {
      const isOurs = fieldOf(event.target) !== null;
      if (!isOurs && isEditable(event.target) && (isCharacter(event) || EDITING.has(event.key))) {
        typedIn = document.activeElement;
      }
      const card = openCard();
      const at = card && armedAt.get(card.dataset.card);
      if (at > performance.now()) armedAt.set(card.dataset.card, performance.now() + EARLY_MS);
    },
    key(event) {
      const card = openCard();
      if (!card) return false;
      if (event.key === "Escape" && !event.isComposing) {
        if (!event.repeat) answer(card, isEditing(card) ? "back" : "escape");
        return true;
      }
      const field = fieldOf(event.target);
      if (field && isYoung(card) && (isCharacter(event) || EDITING.has(event.key))) {
        if (takenFrom?.isConnected) takenFrom.focus({ preventScroll: true }); // typed for that element
        return !takenFrom?.isConnected;
      }
      const isComposing = event.isComposing || event.keyCode === 229; // input method, as for Korean
      if (field && (event.key !== "Enter" || isComposing)) return false;
      if (field?.tagName === "TEXTAREA" && event.shiftKey) return false; // a line break
      const enter = field?.matches("[data-why]") ? "cancel" : isEditing(card) ? "check" : "send";
      const how = field ? enter : event.target.closest?.("[data-answer]")?.dataset.answer;
      if (how && event.key !== " " && isCharacter(event) && takenFrom?.isConnected) {
        takenFrom.focus({ preventScroll: true }); // typed for that element
        return false;
      }
      if (!how || !["Enter", " "].includes(event.key)) return false;
      // Shift+Enter and the like run cells in JupyterLab: never an answer.
      const isPlain = !(event.shiftKey || event.ctrlKey || event.altKey || event.metaKey);
      if (isPlain && !event.repeat && event.isTrusted) answer(card, how);
      return true;
    },
    click(event) {
      const fold = event.target.closest?.("[data-fold]");
      if (fold) {
        unfold(fold).focus({ preventScroll: true });
        paintYes();
      }
      const pressed = event.target.closest?.("[data-answer]");
      if (pressed && event.isTrusted) answer(pressed.closest(".lhkit-confirm"), pressed.dataset.answer);
    },
  };
}

/** The input row and the row of actions. */
function inputRows(model, root, list, view, line) {
  const input = node("textarea", "lhkit-input", { rows: "2" });
  const status = node("div", "lhkit-status", { role: "status" });
  let isSent = false; // until the kernel reports that it is busy

  function send() {
    const text = input.value;
    if (!text.trim() || isBusy() || line.state !== HEARD || model.get("controls").needs_opt_in) return;
    model.send({ type: "send", text, view });
    input.value = "";
    isSent = true;
    list.scrollTop = list.scrollHeight; // show the reply
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
    const isComposing = event.isComposing || event.keyCode === 229; // input method, as for Korean
    if (event.key !== "Enter" || event.shiftKey || isComposing) return;
    event.preventDefault();
    if (!event.repeat) send();
  });

  function paint() {
    const { busy, can_retry, needs_opt_in } = model.get("controls");
    const isDeaf = line.state !== HEARD;
    input.disabled = needs_opt_in === true;
    sendButton.disabled = isBusy() || isDeaf || needs_opt_in === true;
    stopButton.disabled = !isBusy() || isDeaf;
    for (const [each, name] of actions) {
      each.disabled = isDeaf || (name === "retry" ? isBusy() || !can_retry : busy === true);
    }
    locale.disabled = isDeaf || busy === true;
    if (isDeaf) status.textContent = model.get("labels")[line.state];
    else status.innerHTML = model.get("status"); // from render.py
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
    examples.setAttribute("aria-label", labels.examples);
    showExamples();
    root.lang = model.get("locale");
  }

  const buttons = node("div", "lhkit-buttons");
  buttons.append(sendButton, stopButton);
  const row = node("div", "lhkit-write");
  row.append(input, buttons);

  /** Buttons that put an example into the input, where they replace only another example. */
  const examples = node("div", "lhkit-examples", { role: "group" });
  const all = () => model.get("examples") ?? [];
  const isFree = () => input.value === "" || all().includes(input.value);
  function showExamples() {
    examples.replaceChildren(...all().map((text) => {
      const each = button("lhkit-quiet lhkit-example", () => {
        if (input.disabled || !isFree()) return;
        input.value = text;
        input.focus();
      });
      each.textContent = text;
      return each;
    }));
    examples.hidden = examples.children.length === 0;
  }
  const tools = node("div", "lhkit-actions");
  tools.append(...actions.map(([each]) => each), locale);
  root.append(status, examples, row, tools);
  return {
    input,
    paint,
    words,
    settled() { isSent = false; paint(); },
    /** Return text that the kernel did not accept to the input. */
    giveBack(text) {
      input.value = input.value ? `${text}\n${input.value}` : text;
      this.settled();
    },
  };
}

/** Presses before the kernel was connected; answers to cards are not among them. */
function earlyPresses(model, root) {
  const kept = new Set();
  return {
    keep(pressed) {
      kept.add(pressed.dataset.action);
      pressed.setAttribute("aria-disabled", "true"); // pressed once
    },
    /** Send them, except for buttons that are gone by now. */
    send() {
      for (const action of kept) {
        if (root.querySelector(`[data-action="${action}"]`)) model.send({ type: action });
      }
      kept.clear();
    },
  };
}

/** Move the focus from an answered card of an A/B panel to the other card, or to the board. */
function freeFocus(root) {
  const both = root.closest(".lhkit-ab");
  const open = both?.querySelector('.lhkit-confirm[data-state="open"]')?.closest(".lhkit-chat");
  if (open) open.dispatchEvent(new Event("lhkit-take"));
  else both?.querySelector(".lhkit-board")?.dispatchEvent(new Event("lhkit-free"));
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
  // keeps JupyterLab's shortcuts (such as Shift+Enter and Escape) out of the panel
  const root = node("div", "lhkit-chat", { "data-lm-suppress-shortcuts": "true" });
  const list = node("div", "lhkit-list", { role: "log", "aria-label": model.get("labels").messages });
  const title = node("div", "lhkit-side");
  const head = () => {
    title.textContent = model.get("title");
    title.hidden = !title.textContent;
    list.setAttribute("aria-label", title.textContent || model.get("labels").messages);
  };
  head();
  root.append(title, list);
  const line = { state: WAITING };
  const rows = model.get("has_input") ? inputRows(model, root, list, view, line) : null;
  root.classList.toggle("lhkit-alone", rows === null);
  const messages = messageList(model, list);
  const card = confirmCard(model, root, line);
  const early = earlyPresses(model, root);

  const ready = () => line.state !== LOST && model.send({ type: "ready", view });
  const look = () => {
    card.look();
    if (!card.isSettled()) return;
    if (rows) rows.input.focus({ preventScroll: true });
    else freeFocus(root);
  };
  const onWhole = () => { messages.whole(); look(); };
  const onMessage = (message) => {
    if (message.type === "patch") {
      messages.patch(message, ready);
      rows?.settled();
      look();
    } else if (message.type === "file") saveFile(message);
    else if (message.type === "here") {
      turn(HEARD);
      early.send();
    }
    else if (message.type === "roll_call") ready();
    else if (message.type === "copy") keepCopy(model, message);
    else if (message.type === "unsent" && message.view === view) rows?.giveBack(message.text);
  };
  const onKey = (event) => {
    event.stopPropagation(); // JupyterLab would run the cell on Shift+Enter
    if (card.key(event)) event.preventDefault();
  };
  const onKeyUp = (event) => { // Firefox presses a button on keyup of the space bar
    if (event.key === " " && event.target.closest?.("[data-answer]")) event.preventDefault();
  };
  const onClick = (event) => {
    card.click(event);
    const pressed = event.target.closest("[data-action]");
    if (pressed?.dataset.action === "copy") copyText(pressed, model.get("labels"));
    else if (pressed && line.state === HEARD) model.send({ type: pressed.dataset.action });
    else if (pressed && line.state === WAITING) early.keep(pressed);
  };

  const onAnyKey = (event) => {
    if (!["Shift", "Control", "Alt", "Meta"].includes(event.key)) card.someKey(event);
  };
  const onInput = (event) => { // who types a value no longer means null
    if (event.target.name && event.target.tagName !== "SELECT") setValue(event.target, event.target.value);
  };
  document.addEventListener("keydown", onAnyKey, true);
  root.addEventListener("input", onInput);
  root.addEventListener("keydown", onKey);
  root.addEventListener("keyup", onKeyUp);
  root.addEventListener("click", onClick);
  root.addEventListener("lhkit-take", () => card.take());
  const turn = (state) => {
    if (line.state !== LOST) line.state = state;
    root.classList.toggle("lhkit-deaf", line.state !== HEARD);
    if (line.state === HEARD) root.classList.add("lhkit-live"); // hides the notebook's copy
    const outcome = card.openCard()?.querySelector(".lhkit-outcome");
    if (rows) rows.paint();
    else if (outcome) outcome.textContent = line.state === HEARD ? "" : model.get("labels")[line.state];
  };
  const listeners = {
    "msg:custom": onMessage,
    "change:revision": onWhole,
    "change:controls": () => rows?.settled(),
    "change:status": () => rows?.paint(),
    "change:labels": () => rows?.words(),
    "change:examples": () => rows?.words(),
    "change:locale": () => rows?.words(),
    "change:title": head,
    comm_live_update: () => turn(LOST), // the comm was live before this page
  };
  for (const [name, listener] of Object.entries(listeners)) model.on(name, listener);

  el.append(root);
  rows?.words();
  rows?.paint();
  onWhole();
  turn(WAITING);
  ready();
  return () => {
    document.removeEventListener("keydown", onAnyKey, true);
    card.close();
    for (const [name, listener] of Object.entries(listeners)) model.off(name, listener);
    if (line.state !== LOST) model.send({ type: "gone", view });
  };
}

export default { render, initialize };
