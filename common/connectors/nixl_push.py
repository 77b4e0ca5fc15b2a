"""NIXL, push: prefill writes its KV blocks into decode's, as soon as decode has said where they are.

For a gateway it is the pull contract under another name, prefill first, its reply verbatim to decode, save for one
thing: prefill finds the KV that decode asks for by the request's id (less vLLM's own suffix of 8 hex digits), and not
by what its reply says. With different ids on the two legs decode waits in silence. In vLLM 0.32
prefill keeps its blocks for `kv_lease_duration` here too (`nixl/push_scheduler.py`); the watchdog of 480 s
(`push_registration_timeout`) is decode's, for a push that never comes.
"""

from __future__ import annotations

from common.connectors.nixl import NixlConnector


class NixlPushConnector(NixlConnector):
    name = "NixlPushConnector"
    aliases = ("nixl-push",)
    one_request_id = True
    transfer_mode = "push"
