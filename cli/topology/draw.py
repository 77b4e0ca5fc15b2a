"""A graph of stages for the terminal, and as Mermaid for documents."""

from __future__ import annotations

from collections.abc import Iterator

from cli.topology.graph import Edge, Graph, Node

MIN_WIDTH = 28
"""Characters between the borders of a stage's box."""


def as_text(graph: Graph) -> str:
    """Boxes from top to bottom in the pipeline's order. An arrow stands under the box that it leaves; one that passes
    over a stage is told in words."""
    lines: list[str] = []
    for node in graph.nodes:
        lines += _box(node)
        leaving = [edge for edge in graph.edges if edge.source == node.id]
        for edge in sorted(leaving, key=lambda edge: -edge.to):
            lines += _arrow(edge, graph)
    return "\n".join(lines)


def _box(node: Node) -> Iterator[str]:
    head = f"{node.id}  {node.name}"
    width = max([MIN_WIDTH, *(len(line) + 3 for line in (head, *node.details))])
    yield f"┌{'─' * width}┐"
    yield f"│ {head:<{width - 1}}│"
    for i, line in enumerate(node.details):
        last = i == len(node.details) - 1
        arrow = f"──> {node.output} to the client" if last and node.output is not None else ""
        yield f"│ {line:<{width - 1}}{'├' if arrow else '│'}{arrow}"
    yield f"└{'─' * width}┘"


def _arrow(edge: Edge, graph: Graph) -> Iterator[str]:
    below = next((b.id for a, b in zip(graph.nodes, graph.nodes[1:], strict=False) if a.id == edge.source), None)
    if edge.to != below:
        yield f"    · {edge.carries} ──> {edge.to}"
        return
    yield f"    {'║' if edge.kv else '│'} {edge.carries}"
    yield "    ▼"


def as_mermaid(graph: Graph) -> str:
    """A flowchart. KV goes along thick arrows."""
    lines = ["flowchart LR"]
    for node in graph.nodes:
        label = "<br/>".join(_escaped(line) for line in (f"{node.id} {node.name}", *node.details))
        lines.append(f'    s{node.id}["{label}"]')
    for edge in graph.edges:
        lines.append(f'    s{edge.source} {"==>" if edge.kv else "-->"}|"{_escaped(edge.carries)}"| s{edge.to}')
    outputs = [node for node in graph.nodes if node.output is not None]
    if outputs:
        lines.append("    client(((client)))")
    lines += [f'    s{node.id} -->|"{node.output}"| client' for node in outputs]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Mermaid's own spelling of what would end a label."""
    return text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
