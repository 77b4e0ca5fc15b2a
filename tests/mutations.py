"""Breaks the phase contract in one way after another, and shows that the runner's tests notice each.

    python -m tests.mutations

The working tree is not touched: a copy of what the tests need is made for each mutation, and changed there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEEDED = ("common", "engines", "tests/unit/runner", "tests/unit/common/test_phase.py")
TESTS = ("contract", "resume", "rewind", "hooks", "ids")
"""Files of `tests/unit/runner`, without `test_`."""
WITHIN = 300.0
"""Seconds for one run of the tests, on a busy machine."""


@dataclass(frozen=True)
class Mutation:
    """`old` stands in `file` exactly once, and becomes `new`. Of TESTS, `by` is the one that must notice."""

    name: str
    file: str
    old: str
    new: str
    by: str = "contract"


PHASE = "common/phase.py"
ROWS, STEP, MTP, AFTER, FED, KEPT, MEMORY = (
    f"engines/runner/{name}.py" for name in ("rows", "step", "mtp", "after", "fed", "kept", "memory")
)
MUTATIONS = (
    Mutation("phase by span length", PHASE, "self.num_computed < self.prompt_len", "self.span > 1"),
    Mutation(
        "<= for <", PHASE, "return self.num_computed < self.prompt_len", "return self.num_computed <= self.prompt_len"
    ),
    Mutation(
        "a phase that is latched",
        MEMORY,
        "info.update(row.phase.keys())",
        'info.update({**row.phase.keys(), KEYS[2]: info.setdefault("latched", row.phase.is_prefill)})',
    ),
    Mutation(
        "stale keys win",
        MEMORY,
        "info.update(row.phase.keys())",
        "info.update({**row.phase.keys(), KEYS[2]: info.get(KEYS[2], row.phase.is_prefill)})",
    ),
    Mutation(
        "MTP on a prefill tail",
        PHASE,
        "self.span == 1 and not self.is_prefill and not self.is_replay",
        "self.span == 1 and not self.is_replay",
    ),
    Mutation(
        "rows by arrival",
        ROWS,
        "for index, request in enumerate(order)",
        "for index, request in enumerate(name for name in requests if name in spans)",
    ),
    Mutation("codes of row 0", MTP, "nested_in(info, outer)[inner] = own", "nested_in(info, outer)[inner] = kept[:1]"),
    Mutation("MTP's rows at the start", MTP, "_scatter(embeds, taken.starts, out)", "embeds[: len(out)] = out"),
    Mutation(
        "a replay moves decode's state",
        STEP,
        "and row.phase.num_computed >= fed.until",
        "or row.phase.span == 1 and not row.phase.is_prefill",
        by="resume",
    ),
    Mutation("an older hidden state over a newer", AFTER, "if newest < fed.hidden_at:", "if newest < 0:", by="resume"),
    Mutation(
        "the newest is not seen again", AFTER, "if newest < fed.hidden_at:", "if newest <= fed.hidden_at:", by="resume"
    ),
    Mutation(
        "a model remembers what was taken back",
        KEPT,
        "memory.clear()",
        "moment = moment._replace(memory=memory.copy())",
        by="rewind",
    ),
    Mutation(
        "what was seen of it is the newest",
        FED,
        "self.hidden_at, self.unseen = moment.hidden_at, moment.unseen",
        "self.unseen = moment.unseen",
        by="rewind",
    ),
    Mutation(
        "a generator goes on behind it",
        KEPT,
        "self._mtp.generators.restore(row.request, moment.generator)",
        "self._mtp.generators.state(row.request)",
        by="rewind",
    ),
    Mutation(
        "what was taken back is fed again",
        FED,
        "return known if self.until > known else None",
        "return None",
        by="rewind",
    ),
    Mutation(
        "the settings of an earlier prompt",
        STEP,
        "memory_of(row).update(self.settings(row.request))",
        "memory_of(row)",
        by="hooks",
    ),
    Mutation("a hook's ids are dropped", STEP, "own_ids.copy_(ids.reshape(-1))", "own_ids.clone()", by="ids"),
    Mutation(
        "sampled ids are fed again",
        STEP,
        "self.ids[offset + position] = ids[k]",
        "ids[k] = self.ids[offset + position]",
        by="ids",
    ),
    Mutation(
        "embeddings of the first rows", STEP, "self.embeds[start:stop] if", "self.embeds[: stop - start] if", by="ids"
    ),
    Mutation(
        "a hole is fed as it is", STEP, "len(fed.known(cut.replayed)) < len(cut.replayed)", "not cut.replayed", by="ids"
    ),
    Mutation(
        "a replay of what was never fed",
        STEP,
        "if phase.num_computed > max(phase.prompt_len, fed.until) or",
        "if phase.is_replay and",
        by="resume",
    ),
    Mutation("drafts are kept", STEP, "min(row.phase.end, row.phase.num_tokens)", "row.phase.end", by="hooks"),
    Mutation(
        "no length without ids", ROWS, "state.num_prompt_tokens if prompt is None", "0 if prompt is None", by="hooks"
    ),
)


def failures(mutation: Mutation | None) -> list[str]:
    """Names of tests that fail with the mutation, the first one at least; with None, of the tree as it is.

    Raises RuntimeError if the tests could not be run, or the mutation has nothing to change.
    """
    with _copy() as tree:
        if mutation is not None:
            _apply(mutation, tree / mutation.file)
        env = {**os.environ, "DUET_TEST_STAND_IN_ONLY": "1", "PYTHONPATH": str(tree)}
        files = [f"tests/unit/runner/test_{name}.py" for name in (TESTS if mutation is None else (mutation.by,))]
        argv = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-rf", *files]
        done = subprocess.run(argv, cwd=tree, env=env, capture_output=True, text=True, timeout=WITHIN, check=False)
    if done.returncode not in (0, 1):  # 1: tests failed
        raise RuntimeError(f"pytest ended with {done.returncode}; expected 0 or 1:\n{done.stdout}{done.stderr}")
    return re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE)


@contextmanager
def _copy() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="duet-mutation-") as folder:
        tree = Path(folder)
        for name in NEEDED:
            source, target = ROOT / name, tree / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        for package in ("tests", "tests/unit"):
            (tree / package / "__init__.py").touch()
        (tree / "pytest.ini").write_text("[pytest]\n")
        yield tree


def _apply(mutation: Mutation, file: Path) -> None:
    text = file.read_text()
    found = text.count(mutation.old)
    if found != 1:
        raise RuntimeError(
            f"mutation {mutation.name!r}: {mutation.old!r} is in {mutation.file} {found} times; expected 1"
        )
    file.write_text(text.replace(mutation.old, mutation.new))


def main() -> int:
    """Prints a line for each; the status is 1 if one was not noticed."""
    if unchanged := failures(None):
        print(f"the tests fail without any mutation: {', '.join(unchanged)}")
        return 1
    missed = 0
    for mutation in MUTATIONS:
        found = failures(mutation)
        missed += not found
        print(
            f"{'caught' if found else 'MISSED'}  {mutation.name}: {found[0] if found else 'no test fails'}", flush=True
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
