"""The code predictor: from a frame's group 0 to its groups 1 to 15. Plain torch; names of weights are the checkpoint's.

A small transformer that begins anew with each frame: it reads the Talker's hidden state and the row of group 0, then
one code after the other. Its keys and values live as long as one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

Choose = Callable[[Tensor], Tensor]
"""Logits `[n, codes]` -> codes `[n]`."""


class _Norm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self._eps)).to(x.dtype)


class _Attention(nn.Module):
    def __init__(self, c: Any) -> None:
        super().__init__()
        self._heads, self._kv_heads, self._size = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        bias = bool(getattr(c, "attention_bias", False))
        self.q_proj = nn.Linear(c.hidden_size, self._heads * self._size, bias=bias)
        self.k_proj = nn.Linear(c.hidden_size, self._kv_heads * self._size, bias=bias)
        self.v_proj = nn.Linear(c.hidden_size, self._kv_heads * self._size, bias=bias)
        self.o_proj = nn.Linear(self._heads * self._size, c.hidden_size, bias=bias)
        self.q_norm = _Norm(self._size, c.rms_norm_eps)
        self.k_norm = _Norm(self._size, c.rms_norm_eps)

    def empty(self, rows: int, length: int, like: Tensor) -> Tensor:
        """Keys and values: `[2, n, heads, length, size]`."""
        return like.new_empty(2, rows, self._kv_heads, length, self._size)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], kept: Tensor, at: int) -> Tensor:
        """`x` `[n, span, hidden]`, at positions from `at` on; `turn` is cosine and sine, `[span, size]` each."""
        rows, span, _ = x.shape
        q = _turned(self.q_norm(self.q_proj(x).view(rows, span, -1, self._size)).transpose(1, 2), turn)
        k = _turned(self.k_norm(self.k_proj(x).view(rows, span, -1, self._size)).transpose(1, 2), turn)
        v = self.v_proj(x).view(rows, span, -1, self._size).transpose(1, 2)
        kept[0, :, :, at : at + span] = k
        kept[1, :, :, at : at + span] = v
        keys, values = kept[:, :, :, : at + span]
        # The first span begins at 0, all later ones are single and see everything before them.
        out = F.scaled_dot_product_attention(q, keys, values, is_causal=span > 1, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).reshape(rows, span, -1))


class _Mlp(nn.Module):
    def __init__(self, c: Any) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class _Layer(nn.Module):
    def __init__(self, c: Any) -> None:
        super().__init__()
        self.self_attn = _Attention(c)
        self.mlp = _Mlp(c)
        self.input_layernorm = _Norm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = _Norm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], kept: Tensor, at: int) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turn, kept, at)
        return x + self.mlp(self.post_attention_layernorm(x))


class _Body(nn.Module):
    def __init__(self, c: Any, residual: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = _Norm(c.hidden_size, c.rms_norm_eps)
        self.codec_embedding = nn.ModuleList(nn.Embedding(c.vocab_size, c.hidden_size) for _ in range(residual))


class CodePredictor(nn.Module):
    def __init__(self, c: Any) -> None:
        """`c` is the checkpoint's `code_predictor_config`. Raises ValueError for another activation than SiLU."""
        super().__init__()
        if c.hidden_act != "silu":
            raise ValueError(f"code_predictor_config.hidden_act is {c.hidden_act!r}: expected 'silu'")
        self._groups = c.num_code_groups
        residual = c.num_code_groups - 1
        self.model = _Body(c, residual)
        self.lm_head = nn.ModuleList(nn.Linear(c.hidden_size, c.vocab_size, bias=False) for _ in range(residual))
        theta = float((c.rope_parameters or {}).get("rope_theta", 10000.0))
        self._frequencies = [theta ** (-at / c.head_dim) for at in range(0, c.head_dim, 2)]

    def forward(self, hidden: Tensor, first: Tensor, choose: Choose) -> tuple[Tensor, Tensor]:
        """`hidden` is the Talker's after its last norm and `first` the row of group 0, both `[n, hidden]`.

        Returns the codes of groups 1 to 15, `[n, 15]`, and the sum of the rows of all 16 groups, `[n, hidden]`.
        """
        cosine, sine = self._turns(hidden)
        kept = [layer.self_attn.empty(len(hidden), self._groups, hidden) for layer in self.model.layers]
        x, at, total = torch.stack((hidden, first), dim=1), 0, first
        codes = []
        for head, embedding in zip(self.lm_head, self.model.codec_embedding, strict=True):
            end = at + x.shape[1]
            for layer, cache in zip(self.model.layers, kept, strict=True):
                x = layer(x, (cosine[at:end], sine[at:end]), cache, at)
            code = choose(head(self.model.norm(x[:, -1])))
            row = embedding(code)
            codes.append(code)
            total = total + row
            x, at = row[:, None], end
        return torch.stack(codes, dim=1), total

    def _turns(self, like: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(self._groups + 1, device=like.device, dtype=torch.float32)
        angles = torch.outer(places, torch.tensor(self._frequencies, device=like.device)).repeat(1, 2)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cosine, sine = turn
    front, back = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-back, front), dim=-1) * sine
