"""Every notebook runs from top to bottom in a kernel of its own, and is short."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def test_there_is_one() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(path, 4)
    code = [line for cell in notebook.cells if cell.cell_type == "code" for line in cell.source.splitlines()]
    assert len([line for line in code if line.strip()]) <= 12
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    pages = [output.data for output in shown if output.output_type in ("execute_result", "display_data")]
    assert any("<svg" in page.get("text/html", "") for page in pages), "the run shows its curve"
    assert any("over 50 episodes" in page.get("text/plain", "") for page in pages)
    assert any("image/png" in page for page in pages)
