// The browser side of lhkit's boards: shows the kernel's HTML, sends presses, and handles keys and
// focus.

const isEditable = (element) =>
  element?.closest?.("input, textarea, select, [contenteditable='true']") != null;

function render({ model, el }) {
  const view = Math.random().toString(36).slice(2);
  const root = document.createElement("section");
  root.className = "lhkit-chat lhkit-board";
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  const line = document.createElement("div");
  line.className = "lhkit-line";
  line.setAttribute("role", "status");
  let state = "waiting"; // until the kernel sends "here"; a restart ends it
  let early = null; // the button pressed while waiting
  let armedAt = 0; // when keys may press buttons
  let lookedAt = null; // the place scrolled to last
  const focused = new Set(); // the elements that got the focus once
  let isHeld = false; // a pointer is down: an element replaced now would lose its click

  const valueOf = (field) => ((each) => (each?.checked || each?.selected ? null : field.value))(nullOf(field));
  const fields = () =>
    Object.fromEntries([...root.querySelectorAll("[name]")].map((each) => [each.name, valueOf(each)]));

  function send(pressed) {
    if (pressed.disabled) return;
    if (state === "waiting") early ??= { ...pressed.dataset };
    if (state !== "heard") return;
    model.send({ type: "press", press: pressed.dataset.press, value: pressed.dataset.value ?? "",
      view, fields: fields() });
    if (pressed.dataset.press === "send") {
      const input = root.querySelector('[name="message"]');
      if (input) input.value = "";
    }
  }

  /** Send the press made before the kernel was connected, unless its button is gone. */
  function sendEarly() {
    const same = [...root.querySelectorAll("[data-press]")].find(
      ({ dataset }) => dataset.press === early?.press && dataset.value === early?.value,
    );
    early = null;
    if (same) send(same);
  }

  /** Show the changed parts; input and focus are kept. */
  function paint() {
    if (isHeld) return; // onRelease paints
    const parts = model.get("parts");
    const active = document.activeElement;
    const had = root.contains(active) ? active.name || active.dataset.key || active.dataset.value : null;
    const kept = fields();
    while (root.children.length - 1 > parts.length) root.lastElementChild.remove();
    parts.forEach((html, index) => {
      let slot = root.children[index + 1];
      if (!slot) root.append((slot = Object.assign(document.createElement("div"), { className: "lhkit-slot" })));
      if (slot.lhkitShown === html) return;
      slot.lhkitShown = html;
      slot.innerHTML = html; // from the kernel, which escapes everything foreign
      for (const each of slot.querySelectorAll("[name]")) {
        if (each.name in kept && !each.hasAttribute("data-fresh")) each.value = kept[each.name];
      }
    });
    const lost = had !== null && !root.contains(document.activeElement);
    if (lost) {
      const again = [...root.querySelectorAll("[name], [data-key], [data-value]")].find(
        (each) => (each.name || each.dataset.key || each.dataset.value) === had && !each.disabled,
      );
      (again ?? root).focus({ preventScroll: true });
    }
    giveFocus();
    const current = root.querySelector("[data-current]");
    if (current && current !== lookedAt) current.scrollIntoView({ block: "nearest" });
    lookedAt = current;
  }

  /** Focus what the kernel marks, once, unless the user is typing elsewhere. */
  function giveFocus() {
    for (const each of root.querySelectorAll("[data-focus]")) {
      const name = each.dataset.focus;
      if (!name || focused.has(name)) continue;
      focused.add(name);
      const from = document.activeElement;
      const isWriting = isEditable(from) && (from.value ?? from.textContent) !== "";
      if (isWriting && !each.contains(from)) continue;
      if (!isEditable(each)) armedAt = performance.now() + EARLY_MS;
      each.focus({ preventScroll: true });
      each.scrollIntoView({ block: "nearest" });
    }
  }

  function onKey(event) {
    event.stopPropagation(); // keep it from JupyterLab
    if (event.isComposing || event.keyCode === 229 || !event.isTrusted) return; // input method, as for Korean
    const isPlain = !(event.shiftKey || event.ctrlKey || event.altKey || event.metaKey);
    if (isEditable(event.target)) {
      if (event.key === "Enter" && isPlain && event.target.dataset.enter) { // Shift+Enter breaks the line
        event.preventDefault();
        const pressed = root.querySelector(`[data-press="${event.target.dataset.enter}"]`);
        if (pressed && !event.repeat) send(pressed);
      }
      const leave = event.key === "Escape" && root.querySelector('[data-key="Escape"]');
      if (leave) send(leave);
      else if (event.key === "Escape") root.focus({ preventScroll: true });
      return;
    }
    if (!isPlain || event.repeat) return;
    const pressed = root.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (!pressed) return;
    event.preventDefault();
    if (performance.now() >= armedAt) send(pressed);
  }

  function onClick(event) {
    const pressed = event.target.closest?.("[data-press]");
    if (pressed && event.isTrusted) send(pressed);
  }

  function onChange(event) {
    const { change } = event.target.dataset;
    if (change && event.isTrusted && state === "heard") {
      model.send({ type: "press", press: change, value: event.target.value, view, fields: fields() });
    }
  }

  function onInput(event) { // who types a value no longer means null
    const box = event.target.name && event.target.tagName !== "SELECT" && nullOf(event.target);
    if (box) box.checked = false;
  }

  function turn(next) {
    if (state !== "lost") state = next;
    root.classList.toggle("lhkit-deaf", state !== "heard");
    if (state === "heard") root.classList.add("lhkit-live"); // hides the notebook's copy
    line.textContent = state === "heard" ? "" : model.get("labels")[state];
  }

  function words() {
    root.lang = model.get("locale");
    root.setAttribute("aria-label", model.get("labels").title);
    turn(state);
  }

  const listeners = {
    "change:parts": paint,
    "change:labels": words,
    "msg:custom": (message) => {
      if (message.type === "here") {
        turn("heard");
        sendEarly();
      }
      else if (message.type === "copy") keepCopy(model, message);
      else if (message.type === "roll_call") model.send({ type: "ready", view });
      else if (message.type === "unsent" && message.view === view) {
        const input = root.querySelector('[name="message"]');
        if (input) input.value = input.value ? `${message.text}\n${input.value}` : message.text;
      }
    },
    comm_live_update: () => turn("lost"), // the comm was live before this page
  };
  for (const [name, listener] of Object.entries(listeners)) model.on(name, listener);
  const onFree = () => { // a card of this panel was answered, and its focus is free
    const input = root.querySelector('[name="message"]');
    if (input && !input.disabled) input.focus({ preventScroll: true });
  };
  const onHold = () => { isHeld = true; };
  const onRelease = () => { // the click comes first
    if (isHeld) setTimeout(() => { isHeld = false; paint(); });
  };
  for (const name of ["pointerup", "pointercancel"]) window.addEventListener(name, onRelease, true);
  root.addEventListener("pointerdown", onHold);
  root.addEventListener("keydown", onKey);
  root.addEventListener("click", onClick);
  root.addEventListener("change", onChange);
  root.addEventListener("input", onInput);
  root.addEventListener("lhkit-free", onFree);
  root.tabIndex = -1;
  root.append(line);
  el.append(root);
  words();
  paint();
  model.send({ type: "ready", view });
  return () => {
    for (const [name, listener] of Object.entries(listeners)) model.off(name, listener);
    for (const name of ["pointerup", "pointercancel"]) window.removeEventListener(name, onRelease, true);
    if (state !== "lost") model.send({ type: "gone", view });
  };
}

export default { render, initialize };
