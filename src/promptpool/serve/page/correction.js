// Whether an answer is right, and what is: a click puts the picture, as it was given, into the next lesson.

import { announce, button, make, sentence } from "./parts.js"
import { call } from "./server.js"
import { addWaiting, known, removeWaiting } from "./known.js"
import { chooser } from "./chooser.js"

export class Correction {
  // `place` is where the buttons are.
  constructor(file, place) {
    this.file = file
    this.place = place
    this.given = null // { id, label } of the picture once it waits
  }

  // Two buttons: the answer is right, or it is not.
  offer(answer = this.answer, problem = "") {
    this.answer = answer
    this.given = null
    const name = answer.unknown ? answer.guess : answer.label
    const [yes, no] = !name
      ? ["", "Say what it is"]
      : answer.unknown
        ? [`It is ${name}`, "It is something else"]
        : ["Right", "That is wrong"]
    const about = answer.unknown ? this.file.name : `${this.file.name} is ${name}`
    this.wrong = button(no, () => this.correct(), { "aria-label": `${no}: ${this.file.name}` })
    const right = name && button(yes, () => this.teach(name), { "aria-label": `${yes}: ${about}` })
    this.place.replaceChildren(make("div", { class: "row" }, right || null, this.wrong))
    if (problem) this.place.append(make("p", { class: "problem", role: "alert" }, problem))
  }

  correct() {
    const { top, label } = this.answer
    const { element, input } = chooser({
      label: "What is it?",
      first: top.map(each => each.label).filter(each => each !== label),
      without: label,
      done: name => this.teach(name),
      cancel: () => this.back(),
    })
    this.place.replaceChildren(element)
    input.focus()
  }

  back() {
    this.offer()
    this.wrong.focus()
  }

  async teach(label) {
    this.tell("quiet", "Putting it into the next lesson.")
    const form = new FormData()
    form.append("files", this.file, this.file.name)
    form.append("label", label)
    try {
      const { added, refused } = await call("POST", "lessons", form, true)
      if (!added.length) {
        this.offer(this.answer, sentence(refused[0]?.error ?? "the server did not take it"))
        return
      }
      this.given = { id: added[0].id, label }
      addWaiting(added)
      this.follow()
      announce(`${this.file.name} goes into the next lesson as ${label}.`)
    } catch (error) {
      this.offer(this.answer, error.message)
    }
  }

  // Say where the picture is: it waits, or a lesson has taken it.
  follow() {
    if (!this.given) return
    const { id, label } = this.given
    const waits = known.waiting.some(each => each.id === id)
    if (this.waits === waits && this.place.querySelector(".good")) return
    this.waits = waits
    const name = make("strong", {}, known.waiting.find(each => each.id === id)?.label ?? label)
    const out = button("Take it out", () => this.takeOut(id), {
      class: "link",
      "aria-label": `Take it out of the lesson: ${this.file.name}`,
    })
    if (waits) this.tell("good", "It goes into the next lesson as ", name, ". ", out)
    else this.tell("good", "It was given to a lesson as ", name, ".")
  }

  async takeOut(id) {
    try {
      await call("DELETE", `lessons/${encodeURIComponent(id)}`, undefined, true)
    } catch (error) {
      this.tell("problem", error.status === 404 ? "It is not in the lesson any more." : error.message)
      return
    }
    this.given = null
    removeWaiting(new Set([id]))
    this.back()
    announce(`${this.file.name} is out of the lesson.`)
  }

  // Replace the buttons by a sentence; whoever used the keyboard stays at it.
  tell(kind, ...words) {
    const inside = this.place.contains(document.activeElement)
    const sentence = make("p", { class: kind, tabindex: "-1" }, ...words)
    this.place.replaceChildren(sentence)
    if (inside) sentence.focus({ preventScroll: true })
  }
}
