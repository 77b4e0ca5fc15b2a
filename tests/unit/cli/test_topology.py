"""`duet topology`: what it prints, and its exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.main import app
from cli.topology.draw import as_mermaid, as_text
from cli.topology.graph import Edge, Graph, Node
from common.topology import plan
from common.topology.document import parse
from common.topology.read import of
from tests.unit.topology.files import QWEN, ROOT, TINY, four, three, topology, written

GOLDEN = ROOT / "tests" / "unit" / "topology" / "golden" / "qwen3_omni_moe_pd.yaml"


def topo(*args: object) -> Result:
    return CliRunner().invoke(app, ["topology", *map(str, args)])


def test_expand_prints_the_four_stages_of_the_real_file() -> None:
    result = topo("expand", QWEN, "--pd")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == GOLDEN.read_text()


def test_expand_without_a_split_prints_three() -> None:
    for args in ([QWEN], [TINY, "--no-pd"]):
        result = topo("expand", *args)
        assert result.exit_code == 0
        assert [s["model_stage"] for s in yaml.safe_load(result.stdout)["stages"]] == ["thinker", "talker", "code2wav"]


def test_expand_for_one_platform() -> None:
    found = yaml.safe_load(topo("expand", QWEN, "--pd", "--platform", "npu").stdout)
    assert "platforms" not in found
    assert [s["devices"] for s in found["stages"]] == ["0,1", "3,4", "2", "2"]


def test_what_is_printed_can_be_read_again(tmp_path: Path) -> None:
    file = written(tmp_path, topo("expand", QWEN, "--pd").stdout)
    assert topo("check", file).stdout.endswith("4 stages: prefill, decode, talker, code2wav; KV by NixlConnector\n")


def test_expand_as_json() -> None:
    found = json.loads(topo("expand", TINY, "--json").stdout)
    assert found["format"] == 1
    assert of(parse(yaml.safe_dump(found["topology"]).encode(), str(TINY))) == plan(TINY).topology
    assert found["notes"][0] == {
        "how": "injected",
        "stage": 0,
        "name": "kv_transfer_config",
        "was": None,
        "now": found["topology"]["stages"][0]["kv_transfer_config"],
        "platform": None,
        "path": "stages[0].pd",
        "line": yaml_line(TINY, "    pd:"),
    }


def yaml_line(file: Path, text: str) -> int:
    return file.read_text().splitlines().index(text) + 1


def test_check_says_what_it_is() -> None:
    assert topo("check", QWEN).stdout == (f"{QWEN}: 3 stages: thinker, talker, code2wav; the Thinker is not split\n")
    assert json.loads(topo("check", QWEN, "--json").stdout) == {
        "format": 1,
        "file": str(QWEN),
        "ok": True,
        "faults": [],
    }


def test_check_tells_every_fault_as_text_and_as_json(tmp_path: Path) -> None:
    file = written(tmp_path, four({}, {"block_size": 16, "kv_cache_dtype": "fp8"}))
    result = topo("check", file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 2
    result = topo("check", file, "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    found = json.loads(result.stdout)
    assert found["ok"] is False
    assert [fault["rule"] for fault in found["faults"]] == ["pair.kv_cache_dtype", "pair.block_size"]
    line = found["faults"][1].pop("line")
    assert file.read_text().splitlines()[line - 1].strip() == "block_size: 16"
    assert found["faults"][1] == {
        "rule": "pair.block_size",
        "path": "stages[1].block_size",
        "what": "block_size differs: stage 0 (thinker prefill) has the engine's default, "
        "stage 1 (thinker decode) has 16",
        "do": "set the same on both: blocks of one do not fit into the other's",
    }


@pytest.mark.parametrize("command", ["expand", "check", "show"])
def test_exit_statuses(command: str, tmp_path: Path) -> None:
    assert topo(command, TINY).exit_code == 0
    assert topo(command, written(tmp_path, "stages: []")).exit_code == 1
    missing = topo(command, tmp_path / "none.yaml")
    assert missing.exit_code == 2
    assert missing.stderr == f"duet: {tmp_path / 'none.yaml'}: cannot be read: No such file or directory\n"
    assert topo(command, TINY, "--platform", "tpu").stderr == (
        "duet: --platform 'tpu': expected one of cpu, cuda, rocm, musa, npu, xpu\n"
    )
    assert topo(command, TINY, "--platform", "tpu").exit_code == 2
    by_hand = topo(command, written(tmp_path, four()), "--no-pd")
    assert by_hand.exit_code == 2
    assert "a split written by hand" in by_hand.stderr


def test_show_draws_every_stage_and_what_goes_between() -> None:
    result = topo("show", QWEN, "--pd")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    for words in (
        ("0  prefill", "1 engine, device 0", "· conditioning of the prompt ──> 2", "║ KV by NixlConnector"),
        ("1  decode", "1 engine, device 2", "──> text to the client", "│ conditioning"),
        ("2  talker", "1 engine, device 1", "│ codes"),
        ("3  code2wav", "1 engine, device 1", "──> audio to the client"),
    ):
        for word in words:
            assert any(word in line for line in lines), word
    assert lines == as_text(Graph.of(plan(QWEN, pd=True).topology)).splitlines()
    boxes = [line.split("├")[0].rstrip("│") for line in lines if line.startswith("│ ")]
    assert len({len(line) for line in boxes}) == 1


def test_show_as_mermaid() -> None:
    result = topo("show", TINY, "--mermaid")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "flowchart LR"
    assert '    s0 ==>|"KV by NixlConnector"| s1' in lines
    assert '    s3 -->|"audio"| client' in lines
    ids = set(re.findall(r"^    (s\d+)\[", result.stdout, re.MULTILINE))
    assert set(re.findall(r"\b(s\d+)\b", result.stdout)) == ids


def test_show_as_json() -> None:
    found = json.loads(topo("show", TINY, "--json").stdout)
    assert {"source": 0, "to": 1, "carries": "KV by NixlConnector", "kv": True} in found["edges"]
    assert [node["name"] for node in found["nodes"]] == ["prefill", "decode", "talker", "code2wav"]


def test_a_graph_without_a_split() -> None:
    graph = Graph.of(topology(three()))
    assert graph.edges == (Edge(0, 1, "conditioning"), Edge(1, 2, "codes"))
    assert graph.nodes[0] == Node(0, "thinker", ("1 engine, device 0",), "text")


def test_names_in_a_graph_cannot_end_a_label() -> None:
    node = Node(0, "thinker", ('a "model" <b>', "#1"), None)
    assert 's0["0 thinker<br/>a #quot;model#quot; #lt;b#gt;<br/>#35;1"]' in as_mermaid(Graph((node,), ()))


def test_help_of_each_command() -> None:
    assert "  topology " in CliRunner().invoke(app, ["--help"]).stdout
    for command in ("expand", "check", "show"):
        assert "Usage: " in topo(command, "--help").stdout


def test_reading_a_file_loads_no_engine_and_no_gateway() -> None:
    code = (
        "import sys; from cli.main import app\n"
        f"try: app(['topology', 'expand', {str(QWEN)!r}, '--pd'])\n"
        "except SystemExit: pass\n"
        "print('loaded', *sorted(set(sys.modules) & {'torch', 'vllm', 'fastapi', 'gateway', 'engines', 'redis'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "loaded"
