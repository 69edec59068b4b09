"""Runs that were archived at Weights & Biases, read as the Hub's repositories are: version, names, sizes, bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from ludus import files
from ludus.archive import package
from ludus.archive.package import refusal
from ludus.archive.steps import PIECE
from ludus.errors import ConfigError, LudusError, MissingExtra, of_system
from ludus.text import clean

SCHEME = "wandb:"
FIRST_ANSWER, ANSWER = 8, 60.0
"""Seconds to wait for W&B's server, and for any byte of a file."""
TRIES, PAGE, BLOCK = 3, 1_000, 1 << 20
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_REFERENCE = re.compile(rf"({_NAME}/{_NAME}/{_NAME})(?::({_NAME}))?")


class WandbRuns:
    """Calls to W&B; every failure is a LudusError."""

    whole = True
    """Whether a run has its environments and stored steps with it."""
    there = "at W&B"

    def __init__(self) -> None:
        from ludus.metrics.sinks.wandb import check, require_server

        check()
        require_server("ludus pull", "")
        with _explained("wandb"):
            import wandb

            self._api = wandb.Api(timeout=FIRST_ANSWER)
        self.endpoint = str(self._api.settings["base_url"])
        self._files: dict[str, Any] = {}

    def commit_of(self, repo: str, revision: str | None) -> str:
        """The version that an alias is now."""
        from ludus.metrics.wandb_archive import TYPE

        name = f"{repo.removeprefix(SCHEME)}:{revision or 'latest'}"
        with _explained(f"{repo}:{revision or 'latest'}"):
            self._artifact = self._api.artifact(name)
            if self._artifact.type != TYPE:
                problem = f"is an artifact of type '{clean(self._artifact.type, 40)}'"
                raise ConfigError(repo, problem, "name one that logging.wandb.archive made")
            return str(self._artifact.version)

    def sizes(self, repo: str, commit: str) -> dict[str, int]:
        """Every file with its size; one that only refers to something elsewhere is refused."""
        where = located(repo, commit)
        with _explained(where):
            listed = islice(self._artifact.files(per_page=PAGE), package.MOST_FILES)
            self._files = {str(file.name): file for file in listed}
        for name, file in self._files.items():
            if file.direct_url == file.url or not str(file.direct_url).startswith(("https://", f"{self.endpoint}/")):
                raise refusal(where, clean(name, 80), "is a link to something else")
        return {name: file.size for name, file in self._files.items()}

    def download(self, repo: str, commit: str, name: str, folder: Path) -> Path:
        """One file with a known name, never more of it than was announced; steps that are there already are kept."""
        where, file, path = located(repo, commit), self._files[name], folder / name
        try:
            folder.mkdir(exist_ok=True, mode=0o700)
            if PIECE.fullmatch(name) and path.is_file() and files.sha256(path) in name:
                return path
            with path.open("wb") as target:
                got = 0
                for block in self._blocks(str(file.direct_url), where):
                    got += len(block)
                    if got > file.size:
                        raise refusal(where, name, f"has more than the {file.size:,} bytes that W&B told")
                    target.write(block)
        except OSError as error:
            raise of_system(error, str(path)) from None
        return path

    def _blocks(self, address: str, where: str) -> Iterator[bytes]:
        """The bytes at an address, which needs no key."""
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util.retry import Retry

        codes = (429, 500, 502, 503, 504)
        again = Retry(
            TRIES,
            backoff_factor=0.2,
            status_forcelist=codes,
            raise_on_status=False,
            respect_retry_after_header=False,  # it may say days
        )
        with _explained(where), requests.Session() as session:
            for scheme in ("https://", "http://"):
                session.mount(scheme, HTTPAdapter(max_retries=again))
            with session.get(address, stream=True, timeout=(FIRST_ANSWER, ANSWER)) as answer:
                answer.raise_for_status()
                yield from answer.iter_content(BLOCK)


def reference(text: str) -> tuple[str, str | None]:
    """`wandb:entity/project/name:version` in two; the default is the newest version."""
    found = _REFERENCE.fullmatch(text.removeprefix(SCHEME))
    if found is None or ".." in text:
        raise ConfigError(clean(text, 80), "is no run at W&B", "write wandb:ENTITY/PROJECT/RUN, and :VERSION after it")
    return SCHEME + found[1], found[2]


def located(repo: str, commit: str) -> str:
    """How messages name a version."""
    return f"{repo}:{commit}" if repo.startswith(SCHEME) else f"{repo}@{commit[:12]}"


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """Turn what the client raises into one line."""
    try:
        import requests
        import wandb
    except ImportError:
        raise MissingExtra("W&B", "wandb") from None
    try:
        yield
    except LudusError:
        raise
    except wandb.errors.AuthenticationError:
        remedy = "see that W&B answers, and run `wandb login`, or set WANDB_API_KEY"
        raise ConfigError(where, "W&B does not accept the key, or does not answer", remedy) from None
    except requests.HTTPError as error:
        status = "an error" if error.response is None else error.response.status_code
        raise ConfigError(where, f"the server of its files answered with {status}", "try again later") from None
    except (wandb.Error, requests.RequestException, ValueError, OSError) as error:
        said = clean(" ".join(str(error).split()), 160)
        raise ConfigError(where, f"W&B: {said}", "check the name, and whether you may see it") from None
