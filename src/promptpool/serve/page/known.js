// What the page knows of the classifier and of the pictures that wait; views listen for changes.

import { get } from "./server.js"

export const known = { classifier: null, classes: [], waiting: [] }
export const changes = new EventTarget() // "classifier", "waiting", "job"

export const labels = () => known.classes.map(each => each.name)
const tell = what => changes.dispatchEvent(new Event(what))

// Ask what the classifier is now; its classes are asked for when its version changed.
export async function refresh() {
  const before = known.classifier?.version
  const classifier = await get("classifier")
  if (classifier.version !== before) known.classes = (await get("classes")).classes
  known.classifier = classifier
  tell("classifier")
}

export async function refreshWaiting() {
  known.waiting = (await get("lessons")).pictures
  tell("waiting")
}

export function addWaiting(pictures) {
  const given = new Map(pictures.map(each => [each.id, each])) // one that waits already has a new label
  const there = new Set(known.waiting.map(each => each.id))
  known.waiting = [
    ...known.waiting.map(each => given.get(each.id) ?? each),
    ...[...given.values()].filter(each => !there.has(each.id)),
  ]
  tell("waiting")
}

export function removeWaiting(ids) {
  known.waiting = known.waiting.filter(each => !ids.has(each.id))
  tell("waiting")
}

export function relabelWaiting(ids, label) {
  known.waiting = known.waiting.map(each => (ids.has(each.id) ? { ...each, label } : each))
  tell("waiting")
}

// Classes that wait and are not known yet come after those that are.
export function allLabels() {
  const there = new Set(labels())
  return [...there, ...new Set(known.waiting.map(each => each.label).filter(label => !there.has(label)))]
}
