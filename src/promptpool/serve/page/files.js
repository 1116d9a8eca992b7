// Files that people drop, choose or paste, and the classes that their folders say.

const ENDINGS =
  /\.(apng|avif|bmp|dib|gif|jfif|jpe|jpe?g|j2k|jp2|jpx|mpo|pbm|pgm|png|pnm|ppm|tga|tiff?|webp|heic|heif)$/i
const CLUTTER = new Set(["thumbs.db", "desktop.ini", "__macosx"])
const TRAIN = new Set(["train", "training"])
const TEST = new Set(["val", "valid", "validation", "dev", "test", "testing", "eval", "evaluation"])

const ACCEPT = "image/*,.tif,.tiff,.tga,.bmp,.ppm,.pgm,.webp,.avif"

// Open the system's window for files. It must be called while a click or a key is handled.
export function choose({ folder = false } = {}) {
  return new Promise(done => {
    const input = document.createElement("input")
    input.type = "file"
    input.multiple = true
    input.hidden = true
    if (folder) input.webkitdirectory = true
    else input.accept = ACCEPT
    const end = () => {
      input.remove()
      done(sorted([...input.files].map(file => ({ file, path: file.webkitRelativePath || file.name }))))
    }
    input.addEventListener("change", end)
    input.addEventListener("cancel", end)
    document.body.append(input) // one that is nowhere may be collected before anybody has chosen
    input.click()
  })
}

// What was dropped, folders walked. The list must be taken at once: it is empty after the event.
export async function dropped(transfer) {
  const items = [...transfer.items].filter(item => item.kind === "file")
  const entries = items.map(item => item.webkitGetAsEntry?.() ?? item.getAsFile())
  const found = []
  for (const entry of entries) {
    if (entry instanceof File) found.push({ file: entry, path: entry.name })
    else if (entry) await walk(entry, found)
  }
  return sorted(found)
}

export const pasted = transfer => sorted([...transfer.files].map(file => ({ file, path: file.name })))

async function walk(entry, found) {
  if (isClutter(entry.name)) return
  if (entry.isFile) {
    const file = await new Promise((done, failed) => entry.file(done, failed))
    found.push({ file, path: entry.fullPath.replace(/^\//, "") })
    return
  }
  const reader = entry.createReader()
  for (;;) {
    // a hundred at a time, and none at the end
    const some = await new Promise((done, failed) => reader.readEntries(done, failed))
    if (!some.length) return
    for (const each of some) await walk(each, found)
  }
}

const isClutter = name => name.startsWith(".") || CLUTTER.has(name.toLowerCase())
const isPicture = file => file.type.startsWith("image/") || ENDINGS.test(file.name)

function sorted(found) {
  const own = found.filter(({ path }) => !path.split("/").some(isClutter))
  const pictures = own.filter(({ file }) => isPicture(file))
  return { pictures, others: own.length - pictures.length }
}

// The class of each picture is the folder that it lies in; a test folder beside a train folder is left out. Pictures
// in no folder, or in one folder alone, have none yet; the folder's name is proposed.
export function placed(pictures) {
  const folders = pictures.map(({ path }) => path.split("/").slice(0, -1))
  const above = folders.map(each => each.slice(0, -1).map(name => name.toLowerCase()))
  const trains = above.some(names => names.some(name => TRAIN.has(name)))
  const around = new Set(
    folders.flatMap(each => each.slice(0, -1).map((_, place) => each.slice(0, place + 1).join("/"))),
  )
  const result = { labelled: [], loose: [], proposed: "", leftOut: 0 }
  pictures.forEach(({ file }, place) => {
    const own = folders[place]
    const label = own.at(-1) ?? ""
    if (trains && above[place].some(name => TEST.has(name))) result.leftOut += 1
    else if (!own.length || around.has(own.join("/")) || TRAIN.has(label.toLowerCase())) result.loose.push(file)
    else result.labelled.push({ file, label: label.trim() })
  })
  const alone = new Set(result.labelled.map(each => each.label))
  if (alone.size === 1 && folders.every(each => each.length === 1)) {
    result.proposed = [...alone][0]
    result.loose = result.labelled.splice(0).map(each => each.file)
  }
  return result
}
