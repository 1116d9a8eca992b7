// The view Ask: pictures go to the server in small groups, in the order in which they came.

import { announce, by, make, several } from "./parts.js"
import { call } from "./server.js"
import { changes, known } from "./known.js"
import { choose } from "./files.js"
import { openCamera } from "./camera.js"
import { groups, small } from "./small.js"
import { Card, TOP } from "./card.js"

const AT_ONCE = 8
const pending = []
let cards = []
let working = false

export function prepareAsk() {
  by("ask-choose").addEventListener("click", async () => askAbout(await choose()))
  by("ask-camera").addEventListener("click", async () => {
    by("ask-problem").textContent = await openCamera(file => askAbout({ pictures: [{ file }], others: 0 }))
  })
  by("ask-clear").addEventListener("click", clear)
  by("ask-again").addEventListener("click", () => again(cards))
  by("sure").addEventListener("change", () => again(cards))
  changes.addEventListener("classifier", tally)
  changes.addEventListener("waiting", () => cards.forEach(card => card.correction.follow()))
  tally()
}

export function askAbout({ pictures, others }) {
  by("ask-problem").textContent = others ? `${several(others, "file is", "files are")} no picture and left out.` : ""
  if (!pictures.length) return
  const fresh = pictures.map(({ file }) => new Card(file, { removed, again }))
  cards = [...fresh, ...cards]
  by("cards").prepend(...fresh.map(card => card.element))
  enqueue(fresh)
}

function again(some) {
  for (const card of some) card.wait("Waiting for its turn.")
  enqueue(some.filter(card => !pending.includes(card)))
}

function enqueue(some) {
  pending.push(...some)
  tally()
  work()
}

function removed(card) {
  cards = cards.filter(each => each !== card)
  if (pending.includes(card)) pending.splice(pending.indexOf(card), 1)
  tally()
}

function clear() {
  pending.length = 0
  for (const card of cards) card.leave()
  cards = []
  by("ask-problem").textContent = ""
  tally()
  by("ask-choose").focus()
}

// While one group is answered, the next is made small.
async function work() {
  if (working) return
  working = true
  const asked = []
  let next = prepared()
  for (;;) {
    const group = await next
    if (!group.length) break
    next = prepared()
    for (const part of groups(group, card => card.sent.size, AT_ONCE)) await answer(part)
    asked.push(...group)
    tally()
  }
  working = false
  if (pending.length) {
    work()
    return
  }
  const there = asked.filter(card => !card.gone)
  if (there.length) announce(there.length === 1 ? there[0].inWords() : by("ask-summary").textContent)
}

async function prepared() {
  const group = pending.splice(0, AT_ONCE)
  await Promise.all(
    group.map(async card => {
      if (card.sent) return
      const { sent, shown } = await small(card.file)
      card.sent = sent
      if (!card.gone) card.picture(shown)
    }),
  )
  return group
}

async function answer(group) {
  const asked = group.filter(card => !card.gone)
  if (!asked.length) return
  const form = new FormData()
  for (const card of asked) {
    card.wait("Looking at it.")
    form.append("files", card.sent, card.file.name)
  }
  const sure = by("sure").value
  try {
    const { predictions, version } = await call("POST", `predict?top=${TOP}${sure ? `&sure=${sure}` : ""}`, form, true)
    asked.forEach((card, place) => card.answered(predictions[place], version))
  } catch (error) {
    if (error.status === 413 && asked.length > 1) for (const card of asked) await answer([card])
    else for (const card of asked) card.failed(error.message)
  }
}

function tally() {
  const number = state => cards.filter(card => card.state === state).length
  const parts = [
    number("known") && `${number("known")} recognised`,
    number("unknown") && `${number("unknown")} not known`,
    number("failed") && `${number("failed")} without an answer`,
    number("waiting") && `${number("waiting")} to go`,
  ].filter(Boolean)
  const old = cards.some(
    card => ["known", "unknown"].includes(card.state) && card.version !== known.classifier?.version,
  )
  const said = `${several(cards.length, "picture")}: ${parts.join(", ")}.${old ? " It has changed since." : ""}`
  by("ask-summary").textContent = cards.length ? said : "Answers appear here."
  by("ask-again").classList.toggle("primary", old)
  const progress = by("ask-progress")
  progress.classList.toggle("on", number("waiting") > 0 && cards.length > 1)
  progress.max = Math.max(cards.length, 1)
  progress.value = cards.length - number("waiting")
  by("ask-clear").disabled = by("ask-again").disabled = !cards.length
  empty()
}

function empty() {
  const place = by("ask-empty")
  place.hidden = cards.length > 0 || !known.classifier
  if (place.hidden) return
  place.replaceChildren(
    ...(known.classifier.classes
      ? [
          make("h3", {}, "Nothing asked yet"),
          make("p", { class: "quiet" }, "One picture or five hundred: they go to this server and nowhere else."),
        ]
      : [
          make("h3", {}, "It has learned nothing yet"),
          make("p", { class: "quiet" }, "Show it some pictures first: a few of each class are enough to begin with."),
          make("p", {}, make("a", { class: "button primary", href: "#teach" }, "Teach it")),
        ]),
  )
}
