"""A CSV of paths and labels, as people and spreadsheets write it; whatever is wrong is one line with its number."""

from __future__ import annotations

import csv
import os
import random
from pathlib import Path

import pytest

from promptpool.data.images import ImageFile
from promptpool.data.own.table import Listed, read_table, table_notes
from promptpool.data.stores import Folder
from promptpool.errors import BadFileError

ENTRIES = [ImageFile("cats/a.png", "cat"), ImageFile("dogs/b.png", "dog")]


def write(folder: Path, content: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def entries(folder: Path, content: str | bytes, name: str = "table.csv") -> list[ImageFile]:
    return read_table(write(folder, content, name))[1]


def refusal(folder: Path, content: str | bytes, name: str = "table.csv") -> str:
    path = write(folder, content, name)
    with pytest.raises(BadFileError) as error:
        read_table(path)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


WRITTEN: dict[str, str | bytes] = {
    "header": "path,label\ncats/a.png,cat\ndogs/b.png,dog\n",
    "no header": "cats/a.png,cat\ndogs/b.png,dog\n",
    "no newline at the end": "cats/a.png,cat\ndogs/b.png,dog",
    "columns in another order": "label,path\ncat,cats/a.png\ndog,dogs/b.png\n",
    "capital letters": "Path,LABEL\ncats/a.png,cat\ndogs/b.png,dog\n",
    "mark at the start": b"\xef\xbb\xbfpath,label\ncats/a.png,cat\ndogs/b.png,dog\n",
    "mark, no header": b"\xef\xbb\xbfcats/a.png,cat\ndogs/b.png,dog\n",
    "semicolons": "path;label\ncats/a.png;cat\ndogs/b.png;dog\n",
    "semicolons, no header": "cats/a.png;cat\ndogs/b.png;dog\n",
    "tabs": "path\tlabel\ncats/a.png\tcat\ndogs/b.png\tdog\n",
    "Windows": "path,label\r\ncats\\a.png,cat\r\ndogs\\b.png,dog\r\n",
    "old Mac": "path,label\rcats/a.png,cat\rdogs/b.png,dog\r",
    "quoted": '"path","label"\n"cats/a.png","cat"\n"dogs/b.png","dog"\n',
    "spaces": "path, label\ncats/a.png , cat \n dogs/b.png,\tdog\n",
    "quoted after a space": 'path, label\ncats/a.png, "cat"\ndogs/b.png, "dog"\n',
    "blank lines": "\n\npath,label\n\ncats/a.png,cat\n  \ndogs/b.png,dog\n\n\n",
    "empty cells of a spreadsheet": "path;label;;\ncats/a.png;cat;;\n;;;\ndogs/b.png;dog\n",
    "dots and double slashes": "./cats/a.png,cat\ndogs//b.png,dog\n",
    "empty columns": "path,label,task,split\ncats/a.png,cat,,\ndogs/b.png,dog\n",
}


@pytest.mark.parametrize("content", WRITTEN.values(), ids=WRITTEN.keys())
def test_reads_what_people_write(content: str | bytes, tmp_path: Path) -> None:
    assert entries(tmp_path, content) == ENTRIES


@pytest.mark.parametrize("label", ["label", "class", "Target", "CATEGORY"])
@pytest.mark.parametrize("picture", ["path", "file", "image", "filename", "FilePath", "file_name"])
def test_columns_have_the_usual_names(picture: str, label: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"{label},{picture}\ncat,cats/a.png\ndog,dogs/b.png\n")
    assert read_table(path)[1] == ENTRIES
    assert table_notes(path) == ()


def test_of_several_columns_one_is_taken_and_said(tmp_path: Path) -> None:
    """As ESC-50 and pandas write it: an index without a name, and a number beside each category."""
    content = ",File,path,fold,target,Category\n0,x,cats/a.png,1,3,cat\n1,y,dogs/b.png,1,4,dog\n"
    store, found = read_table(write(tmp_path, content))
    assert found == ENTRIES
    assert isinstance(store, Listed)
    assert store.notes == table_notes(tmp_path / "table.csv")
    assert store.notes == (
        "each of the columns 'File', 'path' could be the path: 'path' was taken",
        "each of the columns 'target', 'Category' could be the label: 'Category' was taken",
        "columns that were not read: 'fold'",
    )


def test_a_label_may_be_called_like_a_column(tmp_path: Path) -> None:
    assert entries(tmp_path, "a.png,target\nb.png,label\n") == [
        ImageFile("a.png", "target"),
        ImageFile("b.png", "label"),
    ]


def test_a_tsv_is_separated_by_tabs_whatever_its_cells_hold(tmp_path: Path) -> None:
    assert entries(tmp_path, "a,1;2.png\tcat, black\n", "table.tsv") == [ImageFile("a,1;2.png", "cat, black")]


def test_labels_are_text_as_written(tmp_path: Path) -> None:
    content = 'path,label\na.png,007\nb.png,"cat, ""black"""\nc.png,Ärger 猫\nd.png,1.0\ne.png,"two\nlines"\nf.png,NA\n'
    labels = [entry.label for entry in entries(tmp_path, content)]
    assert labels == ["007", 'cat, "black"', "Ärger 猫", "1.0", "two\nlines", "NA"]


def test_the_other_separator_may_stand_in_a_cell(tmp_path: Path) -> None:
    assert entries(tmp_path, "path;label\na,b.png;cat, black\n") == [ImageFile("a,b.png", "cat, black")]
    assert entries(tmp_path, 'a.png,"cat; black"\nb;c.png,dog') == [
        ImageFile("a.png", "cat; black"),
        ImageFile("b;c.png", "dog"),
    ]


@pytest.mark.parametrize("column", ["task", "domain"])
def test_groups(column: str, tmp_path: Path) -> None:
    found = entries(tmp_path, f"path,{column},label\na.png,1,cat\nb.png,indoor,dog\n")
    assert found == [ImageFile("a.png", "cat", "1"), ImageFile("b.png", "dog", "indoor")]


@pytest.mark.parametrize("word", ["val", "valid", "validation", "Validation", "test", "TEST"])
def test_validation_means_test_where_no_row_says_test(word: str, tmp_path: Path) -> None:
    found = entries(tmp_path, f"path,label,split\na.png,cat,train\nb.png,cat,{word}\n")
    assert [entry.split for entry in found] == ["train", "test"]


def test_validation_beside_test_is_left_out(tmp_path: Path) -> None:
    store, found = read_table(write(tmp_path, "path,label,split\na.png,x,train\nb.png,x,val\nc.png,x,test\n"))
    assert found == [ImageFile("a.png", "x", "", "train"), ImageFile("c.png", "x", "", "test")]
    assert store.names() == ["a.png", "c.png"]


def test_reads_the_files_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "a.png").write_bytes(b"meow")
    (tmp_path / "not listed.png").write_bytes(b"")
    store, found = read_table(write(tmp_path, "cats/a.png,cat\ncats/a.png,cat\n"))
    assert store.where == tmp_path
    assert store.names() == ["cats/a.png"]
    assert [store.read(entry.name) for entry in found] == [b"meow", b"meow"]
    assert store.stamp("cats/a.png") == Folder(tmp_path).stamp("cats/a.png")


def test_the_folder_may_be_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.png,cat\n")
    (tmp_path / "a.png").write_bytes(b"meow")
    monkeypatch.chdir(tmp_path)
    assert read_table(Path("table.csv"))[0].read("a.png") == b"meow"


def test_absolute_paths_are_read_from_the_folder_they_share(tmp_path: Path) -> None:
    for name in ("data/one/a.png", "data/two/deep/b.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "tables").mkdir()
    content = f"{tmp_path}/data/one/a.png,cat\n{tmp_path}/data/two/deep/b.png,dog\n"
    store, found = read_table(write(tmp_path / "tables", content))
    assert store.where == tmp_path / "data"
    assert found == [ImageFile("one/a.png", "cat"), ImageFile("two/deep/b.png", "dog")]
    assert [store.read(entry.name) for entry in found] == [b"data/one/a.png", b"data/two/deep/b.png"]


def test_one_absolute_path_is_read_from_its_folder(tmp_path: Path) -> None:
    store, found = read_table(write(tmp_path, "//data//./one/a.png,cat\n"))
    assert (store.where, found) == (Path("/data/one"), [ImageFile("a.png", "cat")])


def test_absolute_paths_that_share_nothing(tmp_path: Path) -> None:
    store, found = read_table(write(tmp_path, "/one/a.png,cat\n/two/b.png,dog\n"))
    assert (store.where, found[1].name, store.names()) == (Path("/"), "two/b.png", ["one/a.png", "two/b.png"])


BAD: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "no rows"),
    "only a mark": (b"\xef\xbb\xbf", "no rows"),
    "only a header": ("path,label\n", "no rows"),
    "no label": ("path,label\na.png,cat\nb.png,\n", "line 3: no label"),
    "blank label": ("path,label\n\na.png,  \n", "line 3: no label"),
    "too few columns": ("a.png,cat\nb.png\n", "line 2: no label"),
    "one column": ("a.png\nb.png\n", "line 1: no label"),
    "no path": ("path,label\n,cat\n", "line 2: no path"),
    "too many columns": ("path,label\na.png,cat,x\n", "line 2: 3 columns, expected 2"),
    "comma in a label": ("a.png,cat\nb.png,dog, black\n", "line 2: 3 columns, expected 2"),
    "three columns without names": ("a.png,cat,train\n", "line 1: 3 columns and no line that names them"),
    "column twice": ("path,label,label\na.png,cat,dog\n", "line 1: column 'label' twice"),
    "other column twice": ("file,Class,class\na.png,cat,dog\n", "line 1: column 'class' twice"),
    "no column of paths": (
        "photo,label,split\na.png,cat,train\n",
        "line 1: no column for the picture: there are 'photo', 'label', 'split'; any of path, filepath, file, ",
    ),
    "no column label": (
        "path,split\na.png,train\n",
        "line 1: no column for its label: there are 'path', 'split'; any of label, class, category, target would do",
    ),
    "task and domain": ("path,label,task,domain\na.png,cat,1,2\n", "line 1: columns task and domain"),
    "names that are not ours": (
        "photo,animal,age\na.png,cat,3\n",
        "line 1: 'photo', 'animal', 'age': neither a picture and its label nor columns that are known; for the picture "
        "any of path, filepath, file, filename, file_name, image would do, for its label any of label, class, category",
    ),
    "many names that are not ours": (",".join(f"c{n}" for n in range(500)), "line 1: 'c0', 'c1', "),
    "label before path, no header": ("cat,a.png\n", "line 1: 'cat', 'a.png': neither a picture and its label"),
    "some tasks": ("path,label,task\na.png,cat,1\nb.png,cat,\n", "line 3: empty task or domain"),
    "some splits": ("path,label,split\na.png,cat,\nb.png,cat,test\n", "line 2: empty split"),
    "unknown split": ("path,label,split\na.png,cat,fold1\n", "line 2: split 'fold1': expected train, test"),
    "up": ("a.png,cat\nb/../../../etc/passwd,dog\n", "line 2: 'b/../../../etc/passwd': a path here does not go up"),
    "up on Windows": ("..\\a.png,cat\n", "line 1: '../a.png': a path here does not go up"),
    "absolute and up": ("/data/../a.png,cat\n", "line 1: '/data/../a.png': a path here does not go up"),
    "mixed": ("a.png,cat\n/etc/b.png,dog\n", "line 2: '/etc/b.png': absolute and relative paths in one table"),
    "mixed the other way": ("/etc/b.png,dog\na.png,cat\n", "line 2: 'a.png': absolute and relative"),
    "drive": ("C:\\data\\a.png,cat\n", "line 1: 'C:/data/a.png': a drive letter"),
    "the folder itself": ("path,label\n./,cat\n", "line 2: './' names no file"),
    "the root": ("path,label\n//,cat\n", "line 2: '/' names no file"),
    "two separators": ("a,b.png;cat\n", "line 1: comma and semicolon"),
    "Latin-1": ("path,label\na.png,cat\nb.png,Ärger\n".encode("latin-1"), "line 3: not UTF-8"),
    "UTF-16": ("path,label\na.png,cat\n".encode("utf-16"), "line 1: not UTF-8"),
    "NUL": ("path,label\na.png,c\0at\n", "line 2: a NUL byte"),
    "long field": (
        f"path,label\na.png,{'x' * (csv.field_size_limit() + 1)}\n",
        "line 2: field larger",
    ),
    "open quote": ('path,label\na.png,cat\nb.png,"dog\nc.png,owl\n', "line 3: unexpected end of data"),
    "text after a quote": ('path,label\na.png,"cat"s\n', "line 2: ',' expected after '\"'"),
    "long first cell": (f"{'x' * 10000},cat\n", "line 1: 'xxx"),
}


@pytest.mark.parametrize(("content", "expected"), BAD.values(), ids=BAD.keys())
def test_names_the_line(content: str | bytes, expected: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, content).startswith(expected)


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "table.csv", tmp_path):
        with pytest.raises(BadFileError, match=r"no such file|not a regular file"):
            read_table(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "table.csv")
    with pytest.raises(BadFileError, match=r"no such file|not a regular file"):
        read_table(tmp_path / "table.csv")


def test_missing_and_odd_files_fail_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "circle.png").symlink_to("circle.png")
    (tmp_path / "passwd.png").symlink_to("/etc/passwd")
    (tmp_path / "file").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.png")
    names = ["missing.png", "folder.png", "circle.png", "passwd.png", "pipe.png", "file/a.png", "x" * 300 + ".png"]
    store, found = read_table(write(tmp_path, "".join(f"{name},cat\n" for name in names)))
    assert [entry.name for entry in found] == names
    for name in names:
        with pytest.raises(BadFileError) as error:
            store.read(name)
        assert "\n" not in str(error.value)
    for name in ("missing.png", "circle.png", "passwd.png", "file/a.png"):
        with pytest.raises(BadFileError):
            store.stamp(name)


def test_a_name_with_a_nul_byte_is_a_bad_file(tmp_path: Path) -> None:
    with pytest.raises(BadFileError):
        Folder(tmp_path).read("a\0.png")


def test_any_bytes_give_entries_or_one_line(tmp_path: Path) -> None:
    draw = random.Random(4)  # noqa: S311
    start = (
        b'path;label;task;split\r\n"cats/a.png";cat;1;train\r\ncats/b.png;"big ""cat""";1;val\r\nc.png;dog;2;test\r\n'
    )
    pieces = b'" , ; \t \n \r \0 \xff .. / \\ \xef\xbb\xbf path label'.split(b" ")
    results = []
    for _ in range(500):
        content = bytearray(start)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(content) + 1)
            kind = draw.randrange(3)
            if kind == 0:
                content[at:at] = draw.choice(pieces)
            elif kind == 1:
                del content[at : at + draw.randint(1, 12)]
            else:
                content[at : at + 1] = bytes([draw.randrange(128)])
        path = write(tmp_path, bytes(content))
        try:
            _, found = read_table(path)
        except BadFileError as error:
            assert "\n" not in str(error)  # noqa: PT017
            results.append("refused")
        else:
            assert all(entry.label and entry.name and ".." not in entry.name.split("/") for entry in found)
            results.append("read")
    assert min(results.count("refused"), results.count("read")) > 50
