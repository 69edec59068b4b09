"""F17: a live run whose lock file somebody removed makes and takes it again."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

folder = Path(tempfile.mkdtemp())
words = ["train", "CartPole-v1:ppo", "-q", "training.total_timesteps=100_000_000", "training.stop.eval_reward=null"]
often = ["training.evaluation.every_steps=null", "training.checkpoints.every_steps=512", "runtime.compile=never"]
process = subprocess.Popen([sys.executable, "-m", "ludus", *words, *often], cwd=folder, stdout=subprocess.DEVNULL)


def reached(number: int) -> Path:
    """Wait for a checkpoint of so many steps; its run."""
    while True:
        assert process.poll() is None, "the run ended"
        for path in (folder / "runs").glob("*_*/checkpoints/step=*"):
            if int(path.name.removeprefix("step=")) >= number:
                return path.parents[1]
        time.sleep(0.05)


try:
    lock = reached(512) / ".lock"
    lock.unlink()
    done = max(int(path.name.removeprefix("step=")) for path in lock.parent.glob("checkpoints/step=*"))
    reached(done + 2048)
    assert lock.exists(), "four saves later the run still has no lock"
finally:
    process.kill()
