// Pictures made small before they are sent or shown. A lesson gets the files as they are.

const SIDE = 1024 // the server looks at fewer pixels than this
const SHOWN = 360
// Upright, with colours as they are in the file, which is how the server reads it.
const AS_STORED = { imageOrientation: "from-image", colorSpaceConversion: "none" }
const LIGHT = 200_000 // bytes of a file that is not worth decoding here

// What to send for a question and what to show: { sent, shown }, both blobs. A file that this browser cannot read goes as it is.
export async function small(file) {
  if (file.size <= LIGHT) return { sent: file, shown: file }
  let bitmap
  try {
    bitmap = await createImageBitmap(file, AS_STORED)
  } catch {
    return { sent: file, shown: null }
  }
  const opaque = /jpe?g$/.test(file.type)
  const shown = await drawn(bitmap, SHOWN, opaque)
  const sent = Math.max(bitmap.width, bitmap.height) > SIDE ? await drawn(bitmap, SIDE, opaque) : file
  bitmap.close()
  return { sent: sent ?? file, shown: shown ?? file }
}

export function drawn(source, side, opaque) {
  const [wide, high] = [source.videoWidth ?? source.width, source.videoHeight ?? source.height]
  const scale = Math.min(1, side / Math.max(wide, high))
  const canvas = document.createElement("canvas")
  canvas.width = Math.max(1, Math.round(wide * scale))
  canvas.height = Math.max(1, Math.round(high * scale))
  const context = canvas.getContext("2d")
  context.imageSmoothingQuality = "high"
  context.drawImage(source, 0, 0, canvas.width, canvas.height)
  return new Promise(done => canvas.toBlob(done, opaque ? "image/jpeg" : "image/png", 0.92))
}

// Groups that one request carries: few pictures, few bytes.
export function* groups(items, size, most = 8, bytes = 8_000_000) {
  let group = []
  let sum = 0
  for (const item of items) {
    if (group.length && (group.length === most || sum + size(item) > bytes)) {
      yield group
      group = []
      sum = 0
    }
    group.push(item)
    sum += size(item)
  }
  if (group.length) yield group
}
