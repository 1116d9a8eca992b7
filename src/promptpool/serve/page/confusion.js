// What is taken for what: a table for a few classes, a drawing for many, and the worst mistakes in words.

import { by, make, percent, several } from "./parts.js"
import { get } from "./server.js"
import { drawing } from "./drawing.js"

const TABLE = 12 // classes that a table can show
const MOST = 200 // classes that a drawing can show; of more, those with most mistakes
const WORST = 5
const HINT = "Point at a cell, or move over them with the arrow keys."

export async function showConfusion() {
  const found = await get("confusion")
  const place = by("confusion")
  place.hidden = !found?.labels?.length
  if (place.hidden) return
  const many = found.labels.length > MOST
  const shown = many ? mostMistaken(found) : found
  shown.sums = shown.counts.map(row => row.reduce((sum, each) => sum + each, 0))
  const few = shown.labels.length <= TABLE
  const cell = make("p", { id: "cell", class: "cell", role: "status" }, few ? "Point at a number to read it." : HINT)
  const point = spot => (cell.textContent = spot ? inWords(shown, ...spot) : HINT)
  place.replaceChildren(
    make("h3", {}, "What is taken for what"),
    make(
      "p",
      { class: "quiet" },
      "A row is a class, a column the answer; each picture judged as if it had not been learned.",
    ),
    ...(many
      ? [make("p", { class: "quiet" }, `Here are the ${MOST} classes with most mistakes of ${found.labels.length}.`)]
      : []),
    few ? table(shown, point) : drawing(shown, share, strength, point),
    cell,
    mistakes(shown),
  )
}

function mostMistaken({ labels, counts }) {
  const wrong = (row, place) =>
    row.reduce((sum, each, other) => sum + (other === place ? 0 : each + counts[other][place]), 0)
  const mistakes = counts.map(wrong)
  const worst = [...labels.keys()].sort((one, other) => mistakes[other] - mistakes[one]).slice(0, MOST)
  const kept = worst.sort((one, other) => one - other)
  return { labels: kept.map(each => labels[each]), counts: kept.map(row => kept.map(column => counts[row][column])) }
}

const share = ({ counts, sums }, row, column) => (sums[row] ? counts[row][column] / sums[row] : 0)
const strength = value => Math.sqrt(value) // one mistake among a hundred is seen too

function inWords(shown, row, column) {
  const { labels, counts, sums } = shown
  const number = counts[row][column]
  const of = `${number} of ${several(sums[row], "picture")} of ${labels[row]} ${number === 1 ? "is" : "are"}`
  const what = row === column ? "recognised" : `taken for ${labels[column]}`
  return `${of} ${what} (${percent(share(shown, row, column))}).`
}

function table(shown, point) {
  const { labels, counts } = shown
  const cell = (row, column) =>
    make(
      "td",
      {
        class: row === column ? "hit" : "miss",
        title: inWords(shown, row, column),
        set: { "--share": strength(share(shown, row, column)).toFixed(3) },
        on: { pointerenter: () => point([row, column]) },
      },
      counts[row][column] ? String(counts[row][column]) : make("span", { class: "none" }, "0"),
    )
  const corner = make("td", { class: "corner" })
  const heads = labels.map(name => make("th", { scope: "col", class: "turned" }, make("span", { title: name }, name)))
  const line = (name, row) => [
    make("th", { scope: "row", title: name }, name),
    labels.map((_, column) => cell(row, column)),
  ]
  const rows = labels.map((name, row) => make("tr", {}, line(name, row).flat()))
  const all = make(
    "table",
    { class: "matrix" },
    make("thead", {}, make("tr", {}, corner, heads)),
    make("tbody", {}, rows),
  )
  return make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "What is taken for what" }, all)
}

function mistakes(shown) {
  const every = shown.counts.flatMap((row, one) => row.map((number, other) => ({ number, one, other })))
  const wrong = every.filter(each => each.number && each.one !== each.other)
  wrong.sort((one, other) => other.number - one.number)
  if (!wrong.length) return make("p", { class: "good" }, "No picture is taken for another class.")
  const lines = wrong.slice(0, WORST).map(each => make("li", {}, inWords(shown, each.one, each.other)))
  return make("div", {}, make("h4", {}, "Most frequent mistakes"), make("ol", { class: "plain" }, lines))
}
