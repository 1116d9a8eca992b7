// The page of a classifier. Three views, one at a time, named by what follows # in the address.

import { by, several } from "./parts.js"
import { connection } from "./server.js"
import { changes, known, refresh, refreshWaiting } from "./known.js"
import { dropped, pasted } from "./files.js"
import { prepareCamera } from "./camera.js"
import { askAbout, prepareAsk } from "./ask.js"
import { isSending } from "./sending.js"
import { prepareTeach, teach } from "./teach.js"
import { prepareWaiting } from "./waiting.js"
import { followRunning, prepareLesson } from "./lesson.js"
import { look, prepareLook } from "./look.js"

let hiddenNote = null
const VIEWS = ["ask", "teach", "look"]
const view = () => VIEWS.find(each => `#${each}` === location.hash) ?? "ask"

function turn() {
  for (const each of VIEWS) by(each).hidden = each !== view()
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view()}`) link.setAttribute("aria-current", "page")
    else link.removeAttribute("aria-current")
  }
  title()
  look(view() === "look")
}

const title = () => {
  document.title = `${view()[0].toUpperCase()}${view().slice(1)} · ${known.classifier?.name ?? "promptpool"}`
}

function head() {
  const { name, classes, pictures, version, note } = known.classifier
  by("name").textContent = name
  by("facts").textContent = classes
    ? `${several(classes, "class", "classes")}, ${several(pictures, "picture")}, version ${version}`
    : "It has learned nothing yet."
  by("note").hidden = !note || note === hiddenNote
  by("note").firstElementChild.textContent = note
  title()
}

function badge() {
  const place = by("badge")
  place.hidden = !known.waiting.length
  place.textContent = known.waiting.length
  place.setAttribute("aria-label", `${several(known.waiting.length, "picture")} waiting`)
}

// Pictures may be dropped anywhere; in Teach also on a class.
function prepareDrops() {
  const withFiles = event => event.dataTransfer?.types.includes("Files")
  const target = event => (view() === "teach" ? event.target.closest?.("[data-class]") : null)
  const over = event => {
    if (!withFiles(event)) return
    event.preventDefault()
    event.dataTransfer.dropEffect = "copy"
    document.body.classList.add("dragging")
    aim(target(event))
  }
  const end = () => {
    document.body.classList.remove("dragging")
    aim(null)
  }
  document.addEventListener("dragenter", over)
  document.addEventListener("dragover", over)
  document.addEventListener("dragleave", event => event.relatedTarget || end())
  document.addEventListener("pointermove", () => document.body.classList.contains("dragging") && end()) // no drag any more
  document.addEventListener("drop", async event => {
    if (!withFiles(event)) return
    event.preventDefault()
    const label = target(event)?.dataset.class ?? ""
    end()
    take(await dropped(event.dataTransfer), label)
  })
  document.addEventListener("paste", event => {
    const found = pasted(event.clipboardData)
    if (found.pictures.length) {
      event.preventDefault()
      take(found, "")
    }
  })
}

// Say where what is dragged would go.
function aim(element) {
  for (const each of document.querySelectorAll(".aimed")) if (each !== element) each.classList.remove("aimed")
  element?.classList.add("aimed")
  const what = element ? (element.dataset.class ? ` ${element.dataset.class}` : " a new class") : ""
  by("over").firstElementChild.textContent = view() === "teach" ? `Drop to teach${what}` : "Drop to ask"
}

function take(found, label) {
  if (view() === "teach") {
    teach(found, label)
    return
  }
  if (view() !== "ask") location.hash = "#ask"
  askAbout(found)
}

function prepareConnection() {
  const place = by("offline")
  connection.addEventListener("lost", event => {
    place.textContent = event.detail
    place.hidden = false
  })
  connection.addEventListener("back", () => {
    place.hidden = true
    fresh()
  })
}

// Others may have taught it meanwhile: look again whenever somebody comes back to the page.
async function fresh() {
  try {
    await Promise.all([refresh(), refreshWaiting()])
    followRunning()
  } catch (error) {
    by("facts").textContent = error.message
    by("facts").classList.add("problem")
  }
}

document.querySelector(".skip").addEventListener("click", event => {
  event.preventDefault()
  by("main").focus()
})
by("note-close").addEventListener("click", () => {
  hiddenNote = known.classifier.note
  by("note").hidden = true
  by("main").focus()
})
addEventListener("hashchange", turn)
addEventListener("beforeunload", event => isSending() && event.preventDefault()) // pictures on their way would be lost
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) fresh()
})
changes.addEventListener("classifier", head)
changes.addEventListener("waiting", badge)
for (const prepare of [
  prepareAsk,
  prepareTeach,
  prepareWaiting,
  prepareLesson,
  prepareLook,
  prepareCamera,
  prepareDrops,
  prepareConnection,
  turn,
  fresh,
])
  prepare()
