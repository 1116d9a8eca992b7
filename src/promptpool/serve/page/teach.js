// The view Teach: where pictures come from. What waits is in waiting.js, the lesson itself in lesson.js.

import { announce, button, by, byName, count, make, newId, several } from "./parts.js"
import { allLabels, changes, known } from "./known.js"
import { choose, placed } from "./files.js"
import { openCamera } from "./camera.js"
import { small } from "./small.js"
import { chooser, problemWith } from "./chooser.js"
import { send } from "./sending.js"

const MANY = 24 // classes from which on there is a field to find one
const SHOWN = 12
let loose = []
let proposed = ""
let naming = false

export function prepareTeach() {
  by("teach-folder").addEventListener("click", async () => teach(await choose({ folder: true })))
  by("teach-choose").addEventListener("click", async () => teach(await choose()))
  by("teach-camera").addEventListener("click", async () => {
    problem(await openCamera(file => teach({ pictures: [{ file, path: file.name }], others: 0 })))
  })
  const id = newId()
  by("shelf-find").append(
    make("label", { for: id, class: "hidden" }, "Find a class"),
    make("input", { id, type: "search", placeholder: "Find a class", on: { input: shelf } }),
  )
  changes.addEventListener("classifier", shelf)
  changes.addEventListener("waiting", shelf)
}

const problem = text => {
  by("teach-problem").textContent = text
}

// Pictures that were dropped or chosen, for a class if there is one.
export function teach({ pictures, others }, label = "") {
  const said = others ? [`${several(others, "file is", "files are")} no picture and left out.`] : []
  if (label) send(pictures.map(({ file }) => ({ file, label })))
  else {
    const found = placed(pictures)
    if (found.leftOut)
      said.push(`${several(found.leftOut, "picture")} of a test folder ${found.leftOut === 1 ? "is" : "are"} left out.`)
    const [bad] = found.labelled.filter(each => problemWith(each.label))
    if (bad) said.push(problemWith(bad.label))
    const good = found.labelled.filter(each => !problemWith(each.label))
    if (good.length) send(good)
    if (found.loose.length) {
      proposed = loose.length ? "" : found.proposed
      loose = [...loose, ...found.loose]
      tray(true)
    }
  }
  problem(said.join(" "))
}

// Pictures without a class wait in the page until somebody says what they show.
function tray(fresh) {
  const place = by("tray")
  place.hidden = !loose.length
  if (!loose.length) {
    place.replaceChildren()
    return
  }
  const done = label => {
    send(loose.map(file => ({ file, label })))
    emptied(`They go into the next lesson as ${label}.`)
  }
  const { element, input } = chooser({
    label: loose.length === 1 ? "What does it show?" : "What do they show?",
    text: proposed,
    done,
  })
  const pictures = loose.slice(0, SHOWN).map(file => {
    const image = make("img", { alt: file.name, width: 56, height: 56, decoding: "async" })
    small(file).then(({ shown }) => {
      if (!shown) return
      image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true })
      image.src = URL.createObjectURL(shown)
    })
    return make("li", {}, image)
  })
  place.replaceChildren(
    make("h3", {}, `${several(loose.length, "picture has", "pictures have")} no class yet`),
    make(
      "ul",
      { class: "thumbs" },
      pictures,
      loose.length > SHOWN && make("li", { class: "more quiet" }, `+${count(loose.length - SHOWN)}`),
    ),
    element,
    button("Leave them out", () => emptied("They are left out."), { class: "link" }),
  )
  if (fresh && !by("camera").open) input.focus()
}

function emptied(text) {
  loose = []
  proposed = ""
  tray(false)
  announce(text)
  by("teach-choose").focus()
}

// Every class as a button and a place to drop pictures on.
function shelf() {
  const all = allLabels().sort(byName)
  const wanted = by("shelf-find").querySelector("input").value.trim().toLowerCase()
  by("shelf-find").hidden = all.length < MANY
  const learned = new Map(known.classes.map(each => [each.name, each.pictures]))
  const waits = new Map()
  for (const { label } of known.waiting) waits.set(label, (waits.get(label) ?? 0) + 1)
  const chips = all
    .filter(name => name.toLowerCase().includes(wanted))
    .map(name => {
      const [old, fresh] = [learned.get(name) ?? 0, waits.get(name) ?? 0]
      const said = `${name}: ${old ? several(old, "picture") : "new"}${fresh ? `, ${count(fresh)} waiting` : ""}; add pictures`
      return make(
        "li",
        {},
        button(
          [
            make("span", { class: "of" }, name),
            make("small", {}, `${old ? count(old) : "new"}${fresh ? ` +${count(fresh)}` : ""}`),
          ],
          async () => teach(await choose(), name),
          { class: "chip", "data-class": name, "aria-label": said, title: name },
        ),
      )
    })
  if (!naming)
    by("shelf").replaceChildren(
      make("li", {}, button("New class", nameNew, { class: "chip fresh", "data-class": "" })),
      ...chips,
    )
}

function nameNew(event) {
  naming = true
  const end = () => {
    naming = false
    shelf()
    by("shelf").querySelector("button")?.focus()
  }
  const { element, input } = chooser({
    label: "Name of the class",
    cancel: end,
    done: async name => {
      end()
      teach(await choose(), name)
    },
  })
  event.currentTarget.closest("li").replaceChildren(element)
  input.focus()
}
