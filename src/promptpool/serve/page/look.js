// The view Look: what the classifier is, its classes, its mistakes, its prompts, its versions.

import { bar, button, by, bytes, count, make, several } from "./parts.js"
import { download, get } from "./server.js"
import { changes, known } from "./known.js"
import { showClasses } from "./classes.js"
import { showConfusion } from "./confusion.js"
import { prepareDrawing } from "./drawing.js"
import { showVersions } from "./versions.js"

let open = false
let shown = null // the version that is on the page

export function prepareLook() {
  prepareDrawing()
  for (const id of ["about", "versions", "classes", "confusion"])
    by(id).replaceChildren(make("p", { class: "quiet" }, "Asking the server."))
  changes.addEventListener("classifier", () => {
    if (open) show()
  })
}

export function look(is) {
  open = is
  if (open && known.classifier) show()
}

function show() {
  if (shown === known.classifier.version) return
  shown = known.classifier.version
  about()
  showClasses()
  inPlace("confusion", "What is taken for what", showConfusion)
  inPlace("prompts", "How often each prompt is used", showPrompts)
  inPlace("versions", "Versions", showVersions)
}

// A part that fails says so where it would be, and can be tried again.
async function inPlace(id, title, part) {
  try {
    await part()
  } catch (error) {
    const again = button("Try again", () => inPlace(id, title, part), { "aria-label": `Try again: ${title}` })
    by(id).hidden = false
    by(id).replaceChildren(make("h3", {}, title), make("p", { class: "problem", role: "alert" }, error.message), again)
  }
}

function about() {
  const { method, backbone, image_size: size, pictures, classes, version, bytes: large, prompts } = known.classifier
  const facts = [
    ["Method", method],
    ["Backbone", `${backbone}, ${size} pixels`],
    ["Classes", count(classes)],
    ["Pictures learned", count(pictures)],
    ["Prompts", prompts],
    ["Version", version],
    ["On disk", bytes(large)],
  ].filter(([, value]) => value !== null && value !== undefined)
  const problem = make("p", { class: "problem", role: "alert" })
  const said = make("p", { class: "quiet", role: "status" })
  by("about").replaceChildren(
    make("h3", {}, "This classifier"),
    make(
      "dl",
      {},
      facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]),
    ),
    make(
      "div",
      { class: "row" },
      exporting("Download it", "export", ".zip", said, problem),
      exporting("Download as ONNX", "export?format=onnx", ".onnx", said, problem),
    ),
    said,
    problem,
  )
}

function exporting(text, path, ending, said, problem) {
  const press = button(text, async () => {
    press.disabled = true
    problem.textContent = ""
    said.textContent = "The server packs it."
    try {
      const { blob, name } = await download(path)
      const link = make("a", { href: URL.createObjectURL(blob), download: name ?? known.classifier.name + ending })
      link.click()
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000)
      said.textContent = `${bytes(blob.size)} are saved as ${link.download}.`
    } catch (error) {
      said.textContent = ""
      problem.textContent = error.message
    }
    press.disabled = false
  })
  return press
}

async function showPrompts() {
  const counts = (await get("prompts"))?.counts
  const place = by("prompts")
  place.hidden = !counts?.length
  if (place.hidden) return
  const most = Math.max(...counts, 1)
  place.replaceChildren(
    make("h3", {}, "How often each prompt is used"),
    make(
      "ol",
      { class: "columns-chart" },
      counts.map((number, place) =>
        make(
          "li",
          { title: `Prompt ${place}: ${several(number, "time")}` },
          bar(number / most),
          make("span", { class: "hidden" }, `Prompt ${place}: ${several(number, "time")}`),
          make("small", { "aria-hidden": "true" }, String(place)),
        ),
      ),
    ),
  )
}
