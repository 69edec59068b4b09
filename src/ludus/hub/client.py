"""The Hub as this program sees it: a token, a few calls, and one line for everything that can go wrong with them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from logging import CRITICAL
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ludus.archive.package import LIMITS, SHOWN
from ludus.errors import ConfigError, LudusError, MissingExtra
from ludus.text import clean

if TYPE_CHECKING:
    from huggingface_hub import HfApi

Result = TypeVar("Result")
FIRST_ANSWER, ANSWER = 4.0, 60.0
"""Seconds to wait: for the very first answer, which tells whether there is a network, and for any later one."""
TRIES, PAUSE = 3, 1.0
"""Attempts of a call that the Hub refuses for now, and seconds before the second one."""
MOST_FILES = 200
_FOR_NOW = (408, 429, 500, 502, 503, 504)
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOGIN = "set HF_TOKEN, or log in: hf auth login"


class Hub:
    """Calls to the Hub; every failure is a LudusError."""

    whole = False
    """Whether a run has its environments and stored steps with it."""
    there = "on the Hub"

    def __init__(self) -> None:
        self._api = _client()
        self.endpoint = self._api.endpoint

    def account(self) -> str:
        """Name of the user whose token this is."""
        from huggingface_hub import get_token
        from huggingface_hub.utils._headers import build_hf_headers
        from huggingface_hub.utils._http import get_session, hf_raise_for_status

        token = get_token()
        if token is None:
            raise ConfigError("publish", "there is no token for the Hub", _LOGIN)
        with self._explained("HF_TOKEN"):
            address, headers = f"{self.endpoint}/api/whoami-v2", build_hf_headers(token=token)
            answer = get_session().get(address, headers=headers, timeout=FIRST_ANSWER)
            hf_raise_for_status(answer)
            return str(answer.json()["name"])

    def commit_of(self, repo: str, revision: str | None) -> str:
        """The commit that a revision is now."""
        with self._explained(repo):
            found = str(self._api.model_info(repo, revision=revision or "main", timeout=FIRST_ANSWER).sha)
        if not _COMMIT.fullmatch(found):
            raise ConfigError(repo, f"the Hub names '{clean(found, 40)}' as its commit", "try again later")
        return found

    def sizes(self, repo: str, commit: str) -> dict[str, int]:
        """Every file of a repository with its size; folders count as files, for a published run has none."""
        with self._explained(repo):
            entries = list(islice(self._api.list_repo_tree(repo, revision=commit, recursive=True), MOST_FILES))
        return {entry.path: int(getattr(entry, "size", 0) or 0) for entry in entries}

    def download(self, repo: str, commit: str, name: str, folder: Path) -> Path:
        """One file; what an interrupted download left in the folder is continued."""
        with self._explained(repo):
            path = self._again(lambda: self._api.hf_hub_download(repo, name, revision=commit, local_dir=folder))
        return Path(path)

    def check_target(self, repo: str, *, private: bool) -> None:
        """Refuse to publish into a repository with other files, or a private run into a public one."""
        from huggingface_hub.errors import RepositoryNotFoundError

        with self._explained(repo):
            try:
                info = self._api.model_info(repo, timeout=FIRST_ANSWER)
            except RepositoryNotFoundError:
                return
        if private and not info.private:
            raise ConfigError(repo, "exists and is public", "choose another --repo, or make it private on the Hub")
        foreign = sorted(name for name in self.sizes(repo, str(info.sha)) if name not in LIMITS and name not in SHOWN)
        if foreign:
            problem = f"holds other files, such as {clean(foreign[0], 60)}"
            raise ConfigError(repo, problem, "choose another --repo: nobody could pull a run from this one")

    def upload(self, repo: str, folder: Path, message: str, *, private: bool) -> str:
        """All files of a folder as one commit, which is returned; files of an earlier one that are gone are removed."""
        with self._explained(repo):
            self._again(lambda: self._api.create_repo(repo, private=private or None, exist_ok=True))
            stale = [name for name in sorted({*LIMITS, *SHOWN} - {".gitattributes"}) if not (folder / name).exists()]
            done = self._again(
                lambda: self._api.upload_folder(
                    repo_id=repo, folder_path=folder, commit_message=message, delete_patterns=stale
                )
            )
        return str(done.oid)

    def _again(self, call: Callable[[], Result]) -> Result:
        """Call again what the Hub refuses for now and the client does not repeat; what was sent is not sent twice."""
        import httpx2

        for attempt in range(1, TRIES):
            try:
                return call()
            except (OSError, ValueError, RuntimeError, httpx2.HTTPError) as error:
                if not _passes(error):
                    raise
            time.sleep(PAUSE * attempt)
        return call()

    @contextmanager
    def _explained(self, repo: str) -> Iterator[None]:
        """Turn what the client raises into one line."""
        import httpx2

        try:
            yield
        except LudusError:
            raise
        except (OSError, ValueError, RuntimeError, httpx2.HTTPError) as error:
            raise explained(error, repo, self.endpoint) from error


def repository(text: str, account: str = "") -> tuple[str, str | None]:
    """`user/name@revision` in two; a name alone is one of the account's own."""
    name, at, revision = text.partition("@")
    name = name if "/" in name or not account else f"{account}/{name}"
    if not _REPO.fullmatch(name) or ".." in name or "--" in name:
        raise ConfigError(clean(text, 80), "is no repository of the Hub", "write user/name")
    if at and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise ConfigError(clean(text, 80), "names no revision", "write user/name@ and a commit, a branch or a tag")
    return name, revision or None


def explained(error: BaseException, repo: str, endpoint: str) -> LudusError:
    """What happened, and what to do about it."""
    status, host = _status(error), clean(endpoint.partition("://")[2], 80)
    known = {
        401: ("the Hub does not accept the token", _LOGIN),
        403: ("the token may not do this", "make one with write access to it: huggingface.co/settings/tokens"),
        404: ("there is no such repository, revision or file", f"check the name; if it is private, {_LOGIN}"),
        409: ("was changed while this was under way", "try again"),
        412: ("was changed while this was under way", "try again"),
        429: ("the Hub has had too many requests from here", "try again in a few minutes"),
    }
    if status in known:
        return ConfigError(repo, *known[status])
    if status >= 500:
        return ConfigError(repo, f"the Hub answered with error {status}", "try again later: what was sent is kept")
    if status:
        return ConfigError(repo, f"the Hub answered with {status}: {clean(error, 160)}", "see what it says")
    if _unreachable(error):
        return ConfigError(repo, f"{host} does not answer", "see that there is a network; HF_ENDPOINT names the server")
    return ConfigError(repo, clean(" ".join(str(error).split()), 200), "see what it says")


def _client() -> HfApi:
    """The client without progress bars, log lines and endless waits."""
    try:
        import httpx2
        from huggingface_hub import HfApi, set_client_factory
        from huggingface_hub.utils import logging
        from huggingface_hub.utils._http import default_client_factory
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError:
        raise MissingExtra("the Hub", "hub") from None

    def patient() -> httpx2.Client:
        client = default_client_factory()
        client.timeout = httpx2.Timeout(ANSWER, connect=FIRST_ANSWER)
        return client

    set_client_factory(patient)
    disable_progress_bars()
    logging.set_verbosity(CRITICAL)
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, library_name="ludus")


def _passes(error: BaseException) -> bool:
    return _status(error) in _FOR_NOW or (not _status(error) and _unreachable(error))


def _status(error: BaseException | None) -> int:
    """The status of the Hub's answer; 0 if there was none."""
    while error is not None:
        status = getattr(getattr(error, "response", None), "status_code", 0)
        if status:
            return int(status)
        error = error.__cause__
    return 0


def _unreachable(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is one of the connection."""
    import httpx2

    while error is not None:
        if isinstance(error, httpx2.TransportError | ConnectionError):
            return True
        error = error.__cause__
    return False
