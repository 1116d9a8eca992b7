// A matrix of many classes as a drawing: blue on the diagonal, orange where it is wrong. Pointing and arrows read a cell.

import { by, make } from "./parts.js"

const LABELLED = 40 // classes whose names fit beside the cells
const NAMES = 110 // pixels for them
let drawn = null // what is drawn at present

export function drawing(shown, share, strength, point) {
  const canvas = make("canvas", {
    id: "matrix",
    tabindex: "0",
    role: "application",
    "aria-label": `What is taken for what, ${shown.labels.length} classes. Arrow keys move from cell to cell.`,
    "aria-describedby": "cell",
  })
  drawn = { canvas, shown, share, strength, cursor: null }
  const own = drawn
  const to = spot => {
    if (String(spot) === String(own.cursor)) return
    own.cursor = spot
    point(spot)
    draw()
  }
  canvas.addEventListener("pointermove", event => to(cellAt(event)))
  canvas.addEventListener("pointerdown", event => to(cellAt(event)))
  canvas.addEventListener("pointerleave", () => document.activeElement === canvas || to(null))
  canvas.addEventListener("keydown", event => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key]
    if (!step) return
    event.preventDefault()
    const inside = place => Math.min(Math.max(place, 0), shown.labels.length - 1)
    to(own.cursor ? own.cursor.map((place, axis) => inside(place + step[axis])) : [0, 0])
  })
  requestAnimationFrame(draw)
  return make("div", { class: "wide canvas" }, canvas)
}

export function prepareDrawing() {
  new ResizeObserver(draw).observe(by("confusion"))
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw)
}

function sizes() {
  const wide = by("confusion").clientWidth - 46
  const number = drawn.shown.labels.length
  const margin = number <= LABELLED && (wide - NAMES) / number >= 10 ? NAMES : 0
  return { number, margin, cell: Math.min(Math.max(Math.floor((wide - margin) / number), 3), 26) }
}

function cellAt(event) {
  const { number, margin, cell } = sizes()
  const spot = [event.offsetY, event.offsetX].map(each => Math.floor((each - margin) / cell))
  return spot.every(each => each >= 0 && each < number) ? spot : null
}

function draw() {
  if (!drawn?.canvas.isConnected) return
  const { canvas, shown, share, strength, cursor } = drawn
  const { number, margin, cell } = sizes()
  const scale = devicePixelRatio || 1
  const side = margin + number * cell
  canvas.width = canvas.height = Math.round(side * scale)
  canvas.style.width = canvas.style.height = `${side}px`
  const style = getComputedStyle(canvas)
  const colour = name => style.getPropertyValue(name).trim()
  const [hit, miss, gap] = [colour("--hit"), colour("--miss"), cell > 8 ? 1 : 0]
  const pen = canvas.getContext("2d")
  pen.scale(scale, scale)
  pen.fillStyle = colour("--ground")
  pen.fillRect(margin, margin, number * cell, number * cell)
  for (let row = 0; row < number; row += 1) {
    for (let column = 0; column < number; column += 1) {
      const value = share(shown, row, column)
      if (!value) continue
      pen.globalAlpha = 0.15 + 0.85 * strength(value)
      pen.fillStyle = row === column ? hit : miss
      pen.fillRect(margin + column * cell, margin + row * cell, cell - gap, cell - gap)
    }
  }
  pen.globalAlpha = 1
  if (margin) names(pen, margin, cell, colour("--muted"), style.fontFamily)
  if (!cursor) return
  pen.strokeStyle = colour("--ink")
  pen.lineWidth = 2
  pen.strokeRect(margin + cursor[1] * cell - 1, margin + cursor[0] * cell - 1, cell + 1, cell + 1)
}

function names(pen, margin, cell, ink, family) {
  pen.fillStyle = ink
  pen.font = `${Math.min(12, cell - 1)}px ${family}`
  pen.textBaseline = "middle"
  drawn.shown.labels.forEach((name, place) => {
    const text = name.length > 15 ? `${name.slice(0, 14)}…` : name
    const middle = margin + (place + 0.5) * cell
    pen.textAlign = "right"
    pen.fillText(text, margin - 6, middle, margin - 8)
    pen.save()
    pen.translate(middle, margin - 6)
    pen.rotate(-Math.PI / 2)
    pen.textAlign = "left"
    pen.fillText(text, 0, 0, margin - 8)
    pen.restore()
  })
}
