// Used by panel.js and board.js, before which it is put.

const EARLY_MS = 400; // a key typed for something else must not press a button

/** Return the box or the option that makes a field null, if it may be. */
const nullOf = (field) => (field.tagName === "SELECT" ? field : field.closest("label")?.nextElementSibling)
  ?.querySelector(":scope > [data-null]");

/**
 * Show outputs again that JupyterLab gave up on. It looks for a widget for two seconds after a page is
 * opened, and never again if the widgets come from the kernel just then, as in a slow page or one in
 * the background: "Error displaying widget: model not found". Other pages have no `context`.
 */
function initialize({ model }) {
  const manager = model.widget_manager, cells = manager?.context?.model?.cells;
  if (!cells) return undefined;
  let left = 60;
  const timer = setInterval(() => {
    left -= 1;
    if (left === 0) clearInterval(timer);
    showLost(manager, cells);
  }, 1000);
  return () => clearInterval(timer);
}

async function showLost(manager, cells) {
  const isLost = (each) => each.textContent === "Error displaying widget: model not found";
  if (![...document.querySelectorAll(".jupyter-widgets")].some(isLost)) return;
  for (let at = 0; at < cells.length; at += 1) {
    const { outputs } = cells.get(at);
    for (let index = 0; index < (outputs?.length ?? 0); index += 1) {
      const output = outputs.get(index), id = output.data["application/vnd.jupyter.widget-view+json"]?.model_id;
      if (!id || !manager.has_model(id)) continue;
      const { views } = await manager.get_model(id);
      const isSame = outputs.get(index) === output; // the cell may have run again
      if (isSame && Object.keys(views ?? {}).length === 0) outputs.set(index, output.toJSON());
    }
  }
}

/**
 * Renew the copy that the notebook keeps, below the output of the panel. Jupyter renews an output only in
 * the page that ran its cell, not in one that was opened or reloaded afterwards.
 */
function keepCopy(model, { model_id, data }) {
  const cells = model.widget_manager?.context?.model?.cells;
  for (let at = 0; at < (cells?.length ?? 0); at += 1) {
    const { outputs } = cells.get(at);
    for (let index = 1; index < (outputs?.length ?? 0); index += 1) {
      const before = outputs.get(index - 1).data["application/vnd.jupyter.widget-view+json"];
      const output = outputs.get(index);
      if (before?.model_id !== model_id || output.data["text/html"] === data["text/html"]) continue;
      outputs.set(index, { ...output.toJSON(), data });
    }
  }
}
