"""Classifiers by the names of the Hugging Face hub: what `from_pretrained` and `push_to_hub` do.

    CACHE/classifiers/owner/name/COMMIT/     config.json and model.safetensors, as they were at that commit
    CACHE/classifiers/owner/name/revisions/  the commit that each branch or tag was when it was last asked for

What is fetched comes by plain requests, resumed and checked as weights are (`backbones.hub`), and is read as any
folder of a classifier: nothing in it runs. A commit never changes, so one that is here is not asked for again. Without
a network a branch is what it was when it was last fetched. Only pushing needs the package huggingface_hub.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from promptpool import __version__
from promptpool.backbones import hub
from promptpool.classifier import files
from promptpool.classifier.classifier import ContinualClassifier
from promptpool.data import downloads
from promptpool.data.sets.published import Remote
from promptpool.data.transfer import BrokenError, RefusedError
from promptpool.errors import BadFileError
from promptpool.files import cache_folder, write_whole

MESSAGE = "A classifier of promptpool"
NONSENSE = (ValueError, RecursionError, KeyError, TypeError, AttributeError)
PUBLIC = "private = True: is public already, and stays so; make it private in its settings, or take another name"


def from_pretrained(
    name_or_folder: str | Path, *, revision: str | None, token: str | None, backbone: str | Path | None
) -> ContinualClassifier:
    """The classifier in a folder or on the hub."""
    folder = Path(name_or_folder).expanduser()
    if not folder.exists() and hub.is_hub_name(str(name_or_folder)):
        return files.load(fetch(str(name_or_folder), revision=revision, token=token), backbone=backbone)
    if not folder.exists():
        raise BadFileError(f"{name_or_folder}: neither a folder here nor a hub name such as owner/name")
    if revision is not None:
        raise ValueError(f"revision = {revision!r}: {folder} is a folder, and has none")
    return files.load(folder, backbone=backbone)


def fetch(name: str, *, revision: str | None = None, token: str | None = None) -> Path:
    """The folder of a classifier of the hub, downloaded unless it is here."""
    root, token = cache_folder() / "classifiers" / name, token or hub.own_token()
    note = root / "revisions" / quote(revision or "main", safe="")
    if revision is not None and hub.is_commit(revision) and files.is_classifier(root / revision):
        return root / revision
    try:
        commit, remotes = _look_up(name, revision, token)
    except BrokenError as error:
        if (here := _last(note)) is not None:
            return here
        raise BadFileError(f"{name}: the hub cannot be reached ({error}), and no earlier copy is here") from error
    folder = root / commit
    for remote in remotes:
        try:
            downloads.fetch(remote, folder, token=token)
        except BadFileError as error:
            raise BadFileError(f"{name}: {error}") from error
        if remote.name == files.CONFIG:
            _check_config(name, folder / files.CONFIG)
    write_whole(note, commit.encode())
    return folder


def _look_up(name: str, revision: str | None, token: str | None) -> tuple[str, list[Remote]]:
    """The commit of a revision, and the files that matter: what describes the classifier, then the classifier."""
    try:
        said = json.loads(hub.ask(name, revision=revision, token=token))
        commit, there = said["sha"], {file["rfilename"]: file for file in said["siblings"]}
        if not hub.is_commit(commit):
            raise ValueError(commit)
        remotes = [hub.remote(name, commit, there[each]) for each in (files.CONFIG, files.MODEL) if each in there]
    except RefusedError as error:
        raise BadFileError(_refusal(name, revision, error)) from error
    except NONSENSE as error:
        raise BadFileError(f"{name}: the hub does not answer well (no description of a model)") from error
    if len(remotes) < 2:
        raise BadFileError(f"{name}: no classifier of ours (it needs {files.CONFIG} and {files.MODEL})")
    if remotes[0].size is None or remotes[0].size > hub.LONGEST:
        raise BadFileError(f"{name}: {files.CONFIG} must have at most {hub.LONGEST:,} bytes")
    return commit, remotes


def _check_config(name: str, path: Path) -> None:
    """Refuse another kind of model before its weights are fetched."""
    try:
        kind = json.loads(path.read_bytes())["format"]
        ours = kind.startswith("promptpool-classifier-")
    except NONSENSE:
        ours = False
    if not ours:
        hint = f"if it is a backbone, teach it: ContinualClassifier({name!r}).learn(...)"
        raise BadFileError(f"{name}: no classifier of ours, by its {files.CONFIG}; {hint}")


def _last(note: Path) -> Path | None:
    """The folder of the commit that a revision last was, if it is here."""
    try:
        commit = note.read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    folder = note.parents[1] / commit
    return folder if hub.is_commit(commit) and files.is_classifier(folder) else None


def _refusal(name: str, revision: str | None, error: RefusedError) -> str:
    if error.code == "RevisionNotFound":
        return f"revision = {revision!r}: {name} has no such branch, tag or commit"
    if error.code == "GatedRepo" or error.status == 403:
        return f"{name}: its owner asks for consent; give it at {hub.home(name)}, and pass token= or set HF_TOKEN"
    if error.status in (401, 404):
        return f"{name}: no folder here, nor a model that the hub shows; a private one needs token= or HF_TOKEN"
    return f"{name}: the hub refuses ({error})"


def push_to_hub(
    classifier: ContinualClassifier,
    repo_id: str,
    *,
    private: bool,
    token: str | None,
    commit_message: str | None,
    licence: str | None,
) -> str:
    """Write the classifier to the hub, in one commit; returns the address of that commit."""
    if not re.fullmatch(r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", repo_id, re.ASCII):
        raise ValueError(f"repo_id = {repo_id!r}: must read owner/name")
    if licence is not None and not re.fullmatch(r"[a-z0-9.-]+", licence):
        raise ValueError(f"licence = {licence!r}: must be as the hub writes it, such as apache-2.0 or cc-by-4.0")
    api, failures = _client(repo_id, token)
    try:
        name = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if private and not api.model_info(name).private:
            raise BadFileError(f"{name}: {PUBLIC}")
        with TemporaryDirectory() as place:
            folder = Path(place) / "classifier"
            _write(classifier, folder, name, licence)
            said = api.upload_folder(
                repo_id=name,
                folder_path=folder,
                allow_patterns=[files.MODEL, files.CONFIG, files.CARD],  # neither versions nor the lock
                commit_message=commit_message or MESSAGE,
            )
    except BadFileError:
        raise
    except failures as error:
        raise BadFileError(_in_vain(repo_id, error)) from error
    return str(said.commit_url)


def _client(repo_id: str, token: str | None) -> tuple[Any, tuple[type[Exception], ...]]:
    """What speaks to the hub, and what it raises."""
    try:
        from huggingface_hub import HfApi, get_token
        from huggingface_hub.errors import HfHubHTTPError
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("push_to_hub needs the extra: pip install 'promptpool[hub]'") from error
    token = token or get_token()
    if token is None:
        raise BadFileError(f"{repo_id}: pushing needs a token that may write: token=, HF_TOKEN, or hf auth login")
    # Where there is no network it raises what its HTTP library does, which is another in other versions.
    library = [base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception)]
    api = HfApi(endpoint=hub.endpoint(), token=token, library_name="promptpool", library_version=__version__)
    return api, (*library, OSError, RuntimeError, ValueError)


def _write(classifier: ContinualClassifier, folder: Path, name: str, licence: str | None) -> None:
    """The folder that is pushed: without a path of this machine, and with a card that says how to fetch it."""
    shown = copy.copy(classifier)
    shown.new_thumbnails, shown.folder = {}, None  # they are not pushed, and still to be saved
    is_file = Path(classifier.backbone_name).is_absolute()
    shown.backbone_name = Path(classifier.backbone_name).name if is_file else classifier.backbone_name
    shown.save(folder)
    card = folder / files.CARD
    known = {} if is_file or not hub.is_hub_name(shown.backbone_name) else {"base_model": shown.backbone_name}
    known |= {} if licence is None else {"license": licence}
    lines = "".join(f"{key}: {value}\n" for key, value in known.items())
    text = card.read_text(encoding="utf-8").replace("library_name:", f"{lines}library_name:", 1)
    write_whole(card, text.replace('load("THIS-FOLDER")', f'from_pretrained("{name}")').encode())


def _in_vain(repo_id: str, error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        why = f"the hub does not let this token write there: take one of the kind 'write' ({hub.HUB}/settings/tokens)"
    else:
        said = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        why = " ".join(str(said).split()) or type(said).__name__
    return f"{repo_id}: cannot be pushed ({why})"
