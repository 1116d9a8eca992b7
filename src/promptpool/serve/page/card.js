// A picture that was asked about: the answer, and why.

import { bar, button, inShort, listed, make, newId, percent, sentence } from "./parts.js"
import { address } from "./server.js"
import { known } from "./known.js"
import { Correction } from "./correction.js"

export const TOP = 5 // classes that an answer names
const TINY = 80 // pixels of a side; fewer are shown as squares, not as a blur

export class Card {
  constructor(file, { removed, again }) {
    this.file = file
    this.again = again
    this.gone = false
    this.version = null // of the classifier that answered
    const id = newId()
    const ending = (file.name.split(".").at(-1) || "file").slice(0, 5).toUpperCase()
    const shown = {
      error: () => this.picture(null),
      load: () => this.image.classList.toggle("tiny", this.image.naturalWidth < TINY),
    }
    this.image = make("img", { alt: "", decoding: "async", hidden: true, on: shown })
    this.kind = make("span", { class: "kind", hidden: true }, ending)
    this.head = make("div", { class: "head" })
    this.body = make("div", { class: "body" })
    this.actions = make("div", { class: "actions" })
    this.correction = new Correction(file, this.actions)
    const remove = () => {
      this.leave()
      removed(this)
    }
    this.element = make("li", { class: "card", "aria-labelledby": id })
    this.element.append(
      make("div", { class: "picture" }, this.image, this.kind),
      make("div", { class: "said" }, make("p", { id, class: "name quiet", title: file.name }, file.name), this.head),
      button("×", remove, { class: "close", "aria-label": `Remove ${file.name}` }),
      this.body,
      this.actions,
    )
    this.wait("Waiting for its turn.")
  }

  become(state) {
    this.state = this.element.dataset.state = state
  }

  picture(blob) {
    if (this.image.src) URL.revokeObjectURL(this.image.src)
    this.image.hidden = !blob
    this.kind.hidden = Boolean(blob)
    if (blob) this.image.src = URL.createObjectURL(blob)
    else this.image.removeAttribute("src")
  }

  leave() {
    this.gone = true
    if (this.image.src) URL.revokeObjectURL(this.image.src)
    this.element.remove()
  }

  wait(text) {
    this.become("waiting")
    this.head.replaceChildren(make("p", { class: "label quiet" }, text))
    this.body.replaceChildren(...blank())
    this.actions.replaceChildren()
  }

  failed(text, retry = true) {
    this.become("failed")
    this.head.replaceChildren(make("p", { class: "label" }, "No answer"))
    this.body.replaceChildren(make("p", { class: "problem" }, sentence(text)))
    const again = button("Try again", () => this.again([this]), { "aria-label": `Try again: ${this.file.name}` })
    this.actions.replaceChildren(...(retry ? [make("div", { class: "row" }, again)] : []))
  }

  answered(answer, version) {
    if (answer.error) {
      this.failed(answer.error, false)
      return
    }
    this.answer = answer
    this.version = version
    this.become(answer.unknown ? "unknown" : "known")
    const [said, softly] = answer.unknown
      ? ["I do not know this", answer.guess && `The nearest is ${answer.guess}.`]
      : [answer.label, `${percent(answer.confidence)} sure`]
    this.head.replaceChildren(make("p", { class: "label" }, said), make("p", { class: "quiet" }, softly ?? ""))
    this.body.replaceChildren(...best(answer.top), ...chosen(answer.prompts), ...similar(answer.similar))
    this.correction.offer(answer)
  }

  inWords() {
    if (this.state === "failed") return `${this.file.name}: no answer.`
    const { unknown, guess, label, confidence, top } = this.answer
    if (unknown) return `${this.file.name}: I do not know this. The nearest is ${guess}.`
    const others = listed(top.slice(1, 3).map(each => each.label))
    return `${this.file.name}: ${label}, ${percent(confidence)} sure${others ? `; then ${others}` : ""}.`
  }
}

function best(top) {
  const row = ({ label, confidence }) => [
    make("span", { class: "of", title: label }, label),
    bar(confidence),
    make("span", { class: "number" }, inShort(confidence)),
  ]
  return [
    make(
      "ol",
      { class: "best", "aria-label": "Best guesses" },
      top.map(each => make("li", {}, row(each))),
    ),
  ]
}

function chosen(prompts) {
  if (!prompts?.length) return []
  const numbers = prompts.flatMap(each => [make("span", { class: "chip" }, String(each)), " "])
  return [make("p", { class: "quiet" }, prompts.length === 1 ? "Prompt chosen: " : "Prompts chosen: ", numbers)]
}

function similar(pictures) {
  if (!pictures?.length) return []
  const shown = ({ label, thumbnail }) => [
    make("img", { src: address(thumbnail), alt: "", loading: "lazy", width: 56, height: 56 }),
    make("span", { class: "quiet", title: label }, label),
  ]
  const list = make(
    "ul",
    { class: "similar" },
    pictures.map(each => make("li", {}, shown(each))),
  )
  return [make("p", { class: "quiet" }, "Most like these, which it learned:"), list]
}

// As much room as the answer will take, so that nothing moves when it comes.
function blank() {
  const { classes = TOP, prompts = null, thumbnails = false } = known.classifier ?? {}
  const parts = [...best(Array(Math.min(classes, TOP)).fill({ label: ".", confidence: 0 })), ...chosen(prompts && [0])]
  if (thumbnails) parts.push(make("p", { class: "quiet" }, "."), make("div", { class: "room" }))
  for (const part of parts) {
    part.classList.add("blank")
    part.setAttribute("aria-hidden", "true")
  }
  return parts
}
