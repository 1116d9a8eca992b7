"""The page of an evaluation: what is right, class by class, what is taken for what, and how far confidence holds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure

from promptpool.classifier.confusion import MOST, confusion_svg
from promptpool.classifier.evaluation import Bin, ClassResult, Evaluation, mixed_up
from promptpool.classifier.looking import Seen
from promptpool.classifier.pages import Caption, facts, note, paragraph, percent, section, shown, subsection
from promptpool.errors import skipped_text
from promptpool.report.html import page, picture_html, table_html
from promptpool.report.plots import picture
from promptpool.report.table import UNDEFINED, Cell, Column, Table
from promptpool.report.themes import WIDTH, drawing

MOST_PAIRS = 30  # of classes that are mixed up
RELIABILITY = (
    "Answers in ten stretches of confidence; a bar is the share that is right. Bars along the dashed line mean that 80 "
    "of 100 answers with 80 % confidence are right; bars below it, that the classifier is too sure. Only pictures of "
    "known classes that got an answer count."
)


def evaluation_page(name: str, where: str, seen: Seen, found: Evaluation, most: int) -> str:
    """A whole page; it shows at most `most` pictures with wrong answers, and half as many of other kinds."""
    parts = [
        section("Overview", facts(overview(seen, found)), *(note(text) for text in notes(found))),
        section("Class by class", f'<div class="classes">\n{table_html(class_table(found), "Class by class")}\n</div>'),
        section("What is taken for what", *_confusion(found)),
        section("How far confidence holds", *_reliability(found)),
        *_pictures(seen, found, most),
    ]
    lead = f"What {name} answers to pictures in {where}, against their labels."
    return page(f"{name}, evaluated", lead, "\n".join(parts), source="from one pass over the pictures")


def overview(seen: Seen, found: Evaluation) -> dict[str, str]:
    """The numbers that come first, in words."""
    refused = len(found.refused)
    answered = found.of_known - refused
    values = {
        "right": f"{percent(found.right / max(found.of_known, 1))} of {found.of_known:,} pictures of known classes"
    }
    if refused and answered:
        values["refused"] = (
            f'{refused:,} of them got the answer "unknown"; of the others {percent(found.right / answered)} are right'
        )
    if found.strange:
        total, told = (sum(getattr(each, name) for each in found.strange) for name in ("pictures", "refused"))
        values["unknown classes"] = (
            f"{told:,} of {total:,} pictures of {len(found.strange):,} classes that it does not know got the answer "
            '"unknown"'
        )
    if found.error is not None:
        values["confidence"] = f"off by {100 * found.error:.1f} points on average (expected calibration error)"
    if seen.skipped:
        values["files"] = skipped_text(seen.skipped)
    return values


def notes(found: Evaluation) -> list[str]:
    """What makes the numbers better than they are."""
    if not found.learned:
        return []
    return [f"{found.learned:,} of these pictures were learned: the classifier knows them, so they say little."]


def class_table(found: Evaluation) -> Table:
    """Every class, worst first; those that are not known stand last."""
    columns = (
        *(Column("class", left=True), Column("right (%)"), Column("pictures"), Column("refused")),
        Column("most often taken for", left=True),
    )
    classes = sorted(found.classes, key=lambda each: (not each.known, each.right / each.pictures))
    return Table(columns, tuple(_cells(each) for each in classes))


def _cells(each: ClassResult) -> tuple[Cell, ...]:
    share = each.right / each.pictures
    right = Cell(f"{100 * share:.1f}", share=share) if each.known else Cell("not known")
    taken_for = f"{each.taken_for} ({each.times:,})" if each.taken_for else UNDEFINED
    return Cell(each.label), right, Cell(f"{each.pictures:,}"), Cell(f"{each.refused:,}"), Cell(taken_for)


def _confusion(found: Evaluation) -> list[str]:
    label = "Confusion matrix: a row for each label, a column for each answer"
    text = (
        "A row is a label, a column an answer; the stronger a cell's colour, the larger its share of the row. "
        'Blue is right, orange wrong, grey "unknown".'
    )
    if max(len(found.classes), len(found.answers)) > MOST:
        text += f" Only the {MOST} labels with the most wrong answers are drawn."
    pairs = mixed_up(found, MOST_PAIRS)
    around = f'<div class="card wide matrix" tabindex="0" role="region" aria-label="{label}">'
    matrix = f"{around}\n{confusion_svg(found)}\n</div>"
    if not pairs:
        return [paragraph(text), matrix, paragraph("No picture got a wrong answer.")]
    columns = (Column("label", left=True), Column("answer", left=True), Column("pictures"))
    table = Table(columns, tuple((Cell(own), Cell(answer), Cell(f"{count:,}")) for own, answer, count in pairs))
    listed = f'<div class="classes">\n{table_html(table, "Classes that are mixed up most")}\n</div>'
    return [paragraph(text), matrix, subsection("Mixed up most", listed)]


def _reliability(found: Evaluation) -> list[str]:
    if found.error is None:
        return [paragraph("No picture of a known class got an answer.")]
    title = f"Off by {100 * found.error:.1f} points on average"
    drawn = picture("reliability", title, RELIABILITY, partial(reliability, found.bins), vector=True)
    said = ", ".join(
        f"{100 * each.confidence:.0f} %: {100 * each.right:.0f} % right" for each in found.bins if each.answers
    )
    return [] if drawn is None else [picture_html(drawn, said, level=3, card=True)]


def reliability(bins: Sequence[Bin], *, theme: str = "light") -> Figure:
    """Confidence against the share of right answers, with the number of answers above."""
    with drawing(theme) as look:
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        axes = figure.add_subplot()
        axes.plot([0, 100], [0, 100], color=look.ink, linewidth=1.2, linestyle=(0, (4, 3)), zorder=3)
        for each in bins:
            if each.answers:
                middle = 50 * (each.low + each.high)
                axes.bar(middle, 100 * each.right, width=9, color=look.colours[0])
                axes.text(middle, 104, f"{each.answers:,}", ha="center", fontsize=8, color=look.muted)
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 110)
        axes.set_xticks(range(0, 101, 20))
        axes.set_yticks(range(0, 101, 20))
        axes.grid(axis="y")
        axes.set_title("share of right answers (%)")
        axes.set_xlabel("confidence (%); above, how many answers")
    return figure


def _pictures(seen: Seen, found: Evaluation, most: int) -> list[str]:
    """The pictures that did not get their label, by what they got instead."""
    wrong = [row for row in found.wrong if seen.labels[row] in seen.classes]
    strange = [row for row in found.wrong if seen.labels[row] not in seen.classes]
    half = max(most // 2, 1)
    parts = [_shown(seen, "Wrong answers, the surest first", "" if wrong else "There is none.", wrong, most)]
    if found.refused:
        text = 'Pictures of known classes that got the answer "unknown", with the class that they look most like.'
        parts.append(_shown(seen, "Refused", text, found.refused, half))
    if strange:
        text = 'Only "unknown" could be right here; the surest answers come first.'
        parts.append(_shown(seen, "Classes it does not know, answered all the same", text, strange, half))
    return parts


def _shown(seen: Seen, title: str, text: str, rows: Sequence[int], most: int) -> str:
    def caption(row: int) -> Caption:
        return Caption(f"{seen.guess(row)} {percent(seen.confidence(row))}", f"labelled {seen.labels[row]}")

    more = f"{len(rows) - most:,} more are not shown." if len(rows) > most else ""
    return section(title, paragraph(text), shown(seen, rows[:most], caption), note(more))
