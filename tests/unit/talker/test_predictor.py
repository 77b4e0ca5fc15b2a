"""Groups 1 to 15 are what transformers' own code predictor gives."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from engines.talker.predictor import CodePredictor  # noqa: E402
from engines.talker.request import GREEDY, Residual  # noqa: E402
from engines.talker.sampling import Chooser  # noqa: E402

GROUPS, CODES, HIDDEN, ROWS = 16, 40, 64, 5


@pytest.fixture(scope="module")
def stock() -> Any:
    from transformers.models.qwen3_omni_moe import configuration_qwen3_omni_moe as configs
    from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as models

    config = configs.Qwen3OmniMoeTalkerCodePredictorConfig(
        vocab_size=CODES,
        hidden_size=HIDDEN,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_code_groups=GROUPS,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = models.Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration(config).eval()
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.35)
    return model


@torch.no_grad()
def test_greedy_codes_and_summed_rows_are_transformers_own(stock: Any) -> None:
    ours = CodePredictor(stock.config)
    ours.load_state_dict(stock.state_dict())
    given = torch.randn(ROWS, 2, HIDDEN, generator=torch.Generator().manual_seed(1))
    codes, total = ours(given[:, 0], given[:, 1], Chooser([GREEDY] * ROWS, [None] * ROWS, torch.device("cpu")))
    rows = given
    for head, embedding in zip(stock.lm_head, stock.model.codec_embedding, strict=True):
        hidden = stock.model(inputs_embeds=rows, use_cache=False).last_hidden_state
        rows = torch.cat([rows, embedding(head(hidden[:, -1]).argmax(-1))[:, None]], dim=1)
    assert len({tuple(row) for row in codes.tolist()}) == ROWS
    torch.testing.assert_close(total, rows[:, 1:].sum(1))
    again = [embedding.weight[code] for embedding, code in zip(stock.model.codec_embedding, codes.T, strict=True)]
    torch.testing.assert_close(torch.stack(again, 1), rows[:, 2:])


@torch.no_grad()
def test_a_seed_speaks_the_same_alone_and_among_others(stock: Any) -> None:
    ours = CodePredictor(stock.config)
    ours.load_state_dict(stock.state_dict())
    given = torch.randn(ROWS, 2, HIDDEN, generator=torch.Generator().manual_seed(1))

    def codes(rows: list[int]) -> list[list[int]]:
        seeds = [torch.Generator().manual_seed(row) for row in rows]
        choose = Chooser([Residual()] * len(rows), seeds, torch.device("cpu"))
        found: list[list[int]] = ours(given[rows, 0], given[rows, 1], choose)[0].tolist()
        return found

    together = codes(list(range(ROWS)))
    assert [codes([row])[0] for row in range(ROWS)] == together


def test_another_activation_is_refused(stock: Any) -> None:
    from copy import deepcopy

    config = deepcopy(stock.config)
    config.hidden_act = "gelu"
    with pytest.raises(ValueError, match="hidden_act is 'gelu'"):
        CodePredictor(config)
