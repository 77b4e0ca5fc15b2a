"""`--scheduler-cls engines.talker.scheduler.TalkerScheduler`: nobody is scheduled ahead of the Thinker's text.

A request whose next text row has not come is left out of a step, as if it were not there; all others go on. It keeps
its KV blocks, and its place in the order.
"""

from __future__ import annotations

from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from engines.runner.errors import RuntimeUnsupported
from engines.talker.config import marks_of
from engines.talker.feed import Feed
from engines.talker.inbox import inbox
from engines.talker.request import Speech

logger = init_logger(__name__)
IDLE = 0.002
"""Seconds. With nothing to schedule a step waits this long for text; new requests and aborts are looked at between."""


class TalkerScheduler(Scheduler):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.vllm_config.scheduler_config.async_scheduling:
            raise RuntimeUnsupported(
                "async scheduling is on: a step would be scheduled before it is known what it reads; "
                "set --no-async-scheduling"
            )
        if self.vllm_config.cache_config.enable_prefix_caching:
            raise RuntimeUnsupported(
                "prefix caching is on: all prompts are placeholders, so one request would be given another's cache; "
                "set --no-enable-prefix-caching"
            )
        self._feeds: dict[str, Feed] = {}
        self._marks = marks_of(self.vllm_config.model_config.hf_config)

    def add_request(self, request: Request) -> None:
        """A request that is not our endpoint's has nothing to speak: it ends with an error in the next step."""
        super().add_request(request)
        try:
            speech = Speech.of(request.sampling_params.extra_args if request.sampling_params else None)
        except ValueError as e:
            logger.warning("request %s: %s", request.request_id, e)
            return
        self._feeds[request.request_id] = Feed(inbox().open(speech.conditioning), self._marks)

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        held = [request for request in self.running if not self._may_step(request)]
        if not held:
            return self._waited(super().schedule(throttle_prefills))
        out_of_it = set(held)
        order = list(self.running)
        self.running = [request for request in order if request not in out_of_it]
        self.max_num_running_reqs -= len(held)  # they keep their slots
        try:
            output = super().schedule(throttle_prefills)
        finally:
            self.max_num_running_reqs += len(held)
            still = set(self.running) | out_of_it
            self.running = [r for r in order if r in still] + [r for r in self.running if r not in set(order)]
        return self._waited(output)

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        """Requests that can never go on end with an error, as vLLM ends those whose grammar does not compile."""
        self.grammar_compile_error_reqs |= {r for r in self.requests if self._is_hopeless(r)}
        return super().update_from_output(*args, **kwargs)

    def _handle_blocked_waiting_request(self, request: Request) -> bool:
        return self._may_start(request) and super()._handle_blocked_waiting_request(request)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        if self._feeds.pop(request.request_id, None) is not None:
            inbox().close(Speech.of(request.sampling_params.extra_args).conditioning)
        return super()._free_request(request, *args, **kwargs)

    def _may_start(self, request: Request) -> bool:
        """A preempted request has been started before; its next step needs its text all the same."""
        feed = self._feeds.get(request.request_id)
        return feed is not None and feed.lost() is None and feed.can_start() and self._may_step(request)

    def _is_hopeless(self, request: str) -> bool:
        feed = self._feeds.get(request)
        return feed is None or feed.lost() is not None

    def _may_step(self, request: Request) -> bool:
        """Whether the request's newest token, if it has one, can be fed."""
        said = request.num_tokens - request.num_prompt_tokens
        return said == 0 or self._feeds[request.request_id].can_step(said - 1)

    def _waited(self, output: SchedulerOutput) -> SchedulerOutput:
        """Without a pause an engine whose requests are all held would spin."""
        if not output.total_num_scheduled_tokens and self._feeds and not any(map(self._is_hopeless, self.requests)):
            inbox().pause(IDLE)
        return output
