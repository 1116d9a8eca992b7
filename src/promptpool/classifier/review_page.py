"""The page of a review: what to label, what looks new, which labels look wrong, each with its pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from promptpool.classifier.evaluation import ClassResult
from promptpool.classifier.findings import Doubts, ToLabel
from promptpool.classifier.looking import Seen
from promptpool.classifier.pages import Caption, facts, note, paragraph, percent, section, shown, subsection
from promptpool.errors import skipped_text
from promptpool.report.html import page, table_html
from promptpool.report.table import UNDEFINED, Cell, Column, Table

IN_A_GROUP = 12  # pictures that are shown of one
MOST_GROUPS = 40
ORDER = (
    "The first is the one that the classifier hesitates most about: the margin between its two best classes is the "
    "least. Each one after it is chosen for that and for being unlike those before, so that twenty pictures of one "
    "thing do not fill the list."
)
GROUPED = (
    "These are farther from every known class than nineteen in twenty learned pictures are from theirs. Look-alikes "
    "stand together: give a group a name, put its pictures into a folder of that name, and teach it."
)
DOUBTED = (
    "The classifier is as sure that these are of another class as it usually is of pictures that have that label. It "
    "may be wrong: look before you change anything."
)


def unlabelled_page(name: str, where: str, seen: Seen, found: ToLabel) -> str:
    """What to label first and what looks new."""
    counts = {
        "pictures": f"{len(seen):,}",
        "to label first": f"{len(found.first):,}",
        "look new": new_text(found),
        **_left_out(seen, found.learned, found.copies),
    }

    def caption(row: int) -> Caption:
        best = seen.shares[row].argsort(descending=True)[:2].tolist()
        texts = [f"{seen.classes[place]} {percent(float(seen.shares[row, place]))}" for place in best]
        return Caption(texts[0], " ".join(f"or {text}" for text in texts[1:]))

    first = shown(seen, found.first, caption)
    parts = [
        section("Overview", facts(counts), note(found.missing)),
        section("Label these first", paragraph(ORDER), first or paragraph("There is nothing to choose from.")),
    ]
    if found.new:
        parts.append(section("These look new", paragraph(GROUPED), *_groups(seen, found.new)))
    lead = f"Pictures in {where}, as {name} sees them, which knows {len(seen.classes):,} classes."
    return page("What to label next", lead, "\n".join(parts), source="from one pass over the pictures")


def new_text(found: ToLabel) -> str:
    """How many pictures look new, and in how many groups."""
    several = sum(len(group) > 1 for group in found.new)
    alone = len(found.new) - several
    total = sum(map(len, found.new))
    if not total:
        return "none"
    words = [f"{several:,} {'group' if several == 1 else 'groups'} of look-alikes"] if several else []
    words += [f"{alone:,} alone"] if alone else []
    return f"{total:,}: {' and '.join(words)}"


def nearest(seen: Seen, group: Sequence[int]) -> str:
    """The known class that most pictures of a group look like."""
    guesses = Counter(seen.guess(row) for row in group)
    return min(guesses, key=lambda guess: (-guesses[guess], seen.classes.index(guess)))


def _groups(seen: Seen, new: Sequence[Sequence[int]]) -> list[str]:
    several = [group for group in new if len(group) > 1]
    parts = []
    for number, group in enumerate(several[:MOST_GROUPS], start=1):
        more = f", {IN_A_GROUP} of them here" if len(group) > IN_A_GROUP else ""
        title = f"Group {number}: {len(group):,} pictures{more}, nearest to {nearest(seen, group)}"
        parts.append(subsection(title, shown(seen, group[:IN_A_GROUP], dense=True)))
    if len(several) > MOST_GROUPS:
        parts.append(note(f"{len(several) - MOST_GROUPS:,} more groups are not shown; --csv lists all."))
    alone = [group[0] for group in new if len(group) == 1]
    if alone:
        more = f", {2 * IN_A_GROUP} of them here" if len(alone) > 2 * IN_A_GROUP else ""
        parts.append(subsection(f"Alone: {len(alone):,}{more}", shown(seen, alone[: 2 * IN_A_GROUP], dense=True)))
    return parts


def labelled_page(name: str, where: str, seen: Seen, found: Doubts, most: int) -> str:
    """Which labels look wrong, and which classes are not known."""
    counts = {
        "pictures": f"{len(seen):,}",
        "of known classes": f"{found.judged:,}",
        "labels that look wrong": f"{len(found.wrong):,}",
        "classes not known yet": f"{len(found.unknown):,}",
        **_left_out(seen, 0, 0),
    }
    looks = dict(found.wrong)

    def caption(row: int) -> Caption:
        place = seen.classes.index(looks[row])
        return Caption(f"{looks[row]} {percent(float(seen.shares[row, place]))}", f"labelled {seen.labels[row]}")

    wrong = shown(seen, list(looks)[:most], caption)
    more = f"{len(looks) - most:,} more are not shown; --csv lists all." if len(looks) > most else ""
    parts = [
        section("Overview", facts(counts), note(learned_text(found)), note(found.missing)),
        section("Labels that look wrong", paragraph(DOUBTED if wrong else "None does."), wrong, note(more)),
    ]
    if found.unknown:
        table = table_html(unknown_table(found.unknown), "Classes not known yet")
        parts.append(section("Classes not known yet", table, *_examples(seen, found.unknown)))
    lead = f"Pictures in {where} and their labels, as {name} sees them, which knows {len(seen.classes):,} classes."
    return page("Labels to look at", lead, "\n".join(parts), source="from one pass over the pictures")


def learned_text(found: Doubts) -> str:
    if not found.learned or found.missing:
        return ""
    return f"{found.learned:,} of these pictures were learned; each is judged as if it had not been."


def unknown_table(classes: Sequence[ClassResult]) -> Table:
    """Labels that the classifier does not know, with what it makes of them."""
    columns = (
        *(Column("class", left=True), Column("pictures"), Column("answered with unknown")),
        Column("most often taken for", left=True),
    )
    rows = tuple(
        (
            Cell(each.label),
            Cell(f"{each.pictures:,}"),
            Cell(f"{each.refused:,}", share=each.refused / each.pictures),
            Cell(f"{each.taken_for} ({each.times:,})" if each.taken_for else UNDEFINED),
        )
        for each in classes
    )
    return Table(columns, rows)


def _examples(seen: Seen, classes: Sequence[ClassResult]) -> list[str]:
    """A few pictures of each class that is not known."""
    parts = []
    for each in classes[: MOST_GROUPS // 2]:
        rows = [row for row, label in enumerate(seen.labels) if label == each.label]
        parts.append(subsection(each.label, shown(seen, rows[: IN_A_GROUP // 2], dense=True)))
    return parts


def _left_out(seen: Seen, learned: int, copies: int) -> dict[str, str]:
    found = {"learned already": f"{learned:,} copies, left out"} if learned else {}
    found |= {"copies": f"{copies:,} of others among them, left out"} if copies else {}
    return found | ({"files": skipped_text(seen.skipped)} if seen.skipped else {})
