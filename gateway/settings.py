"""Every setting of the gateway: a keyword here, `DUET_<NAME>` in the environment, a flag of `duet gateway`.

Lists are separated by commas or spaces in the environment. Times are seconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from common.connectors import DEFAULT
from gateway.dispatch.policy import Policy

Names = Annotated[tuple[str, ...], NoDecode]
Secrets = Annotated[tuple[SecretStr, ...], NoDecode]


class Settings(BaseSettings):
    """Raises pydantic's ValidationError, which names the setting, the value seen and what was expected."""

    model_config = SettingsConfigDict(
        env_prefix="DUET_", env_file=".env", env_file_encoding="utf-8", extra="ignore", frozen=True
    )

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    admin_host: str | None = Field(None, description="address of the admin port; if not set, the same as for clients")
    admin_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="port for /admin, which is then nowhere else; if not set, it is on the clients' port",
    )
    prefill: Names = Field((), description="base URLs of prefill engines; dns+http://name:port is one at each address")
    decode: Names = Field((), description="base URLs of decode engines, in the same way")
    talkers: Names = Field(
        (), description="base URLs of Talkers, which speak what is said, as codes; none means no speech"
    )
    code2wavs: Names = Field((), description="base URLs of Code2Wav servers, which make sound of Talkers' codes")
    registry: bool = Field(
        False, description="whether engines that announce themselves in Redis are taken (`duet register`)"
    )
    engines_file: str | None = Field(
        None, description="file that lists further engines, read again when it changes (docs/discovery.md)"
    )
    discovery_interval: float = Field(
        0.5, gt=0, le=60, description="between two looks at the registry, the file and DNS names"
    )
    connector: str = Field(DEFAULT, description="the engines' KV connector")
    kv_lease: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="how long prefill keeps KV that nobody fetched, as the engines are configured; "
        "the connector's own default if not set",
    )
    redis_url: SecretStr | None = Field(None, description="redis://, rediss:// or unix:// URL of Redis or Valkey")
    redis_prefix: str = Field("duet:", description="what every key starts with")
    api_key: Secrets = Field((), description="keys that clients may use; none means no check")
    admin_key: SecretStr | None = Field(
        None,
        description="key for the admin endpoints; if not set, a client's key is enough to look, and none to change",
    )
    engine_api_key: SecretStr | None = Field(None, description="key that the gateway sends to the engines")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="how much the log says")

    on_prefill_failure: Policy = Field(
        Policy.RETRY,
        description="what follows a prefill that failed: another one (retry), decode does it all (local, counted), or "
        "an error (fail)",
    )
    on_handoff_missing: Policy = Field(
        Policy.RETRY,
        description="what follows a prefill without a usable handoff, or one that ran out: retry, local or fail",
    )
    on_decode_failure: Literal[Policy.RETRY, Policy.FAIL] = Field(
        Policy.RETRY,
        description="what follows a decode that failed before its first byte: a new prefill and decode (retry), or an "
        "error (fail)",
    )
    on_speech_failure: Literal[Policy.RETRY, Policy.FAIL] = Field(
        Policy.RETRY,
        description="what follows a Talker or a Code2Wav that failed in mid-speech: another one goes on from the "
        "sample that was reached (retry), or the text ends with an error (fail)",
    )
    max_attempts: int = Field(3, ge=1, description="attempts of one request, the first one included")
    retry_share: float = Field(
        0.2, ge=0, le=1, description="retries that there may be, as a share of the requests of the last 10 s"
    )
    retry_floor: int = Field(20, ge=0, description="retries in 10 s that there may be however few requests there are")
    breaker_failures: int = Field(
        3, ge=1, description="requests in a row that an engine fails at before it gets none for a while"
    )
    breaker_pause: float = Field(
        2.0, gt=0, description="for how long, at first; doubled while trials fail, up to four times this"
    )

    max_body_bytes: int = Field(64 * 2**20, gt=0, description="longest request body")
    max_header_bytes: int = Field(64 * 2**10, gt=0, description="longest request line and headers together")
    receive_timeout: float = Field(
        30.0, gt=0, description="for a client to send its headers, and between two parts of its body"
    )
    write_timeout: float = Field(
        60.0, gt=0, description="for a client that takes nothing of its answer; its connection is cut then"
    )
    admission_timeout: float = Field(
        10.0, gt=0, description="from a request's last byte until it is admitted and engines are asked"
    )
    connect_timeout: float = Field(5.0, gt=0, description="to connect to an engine")
    headers_timeout: float = Field(120.0, gt=0, description="from decode sent to the headers of a streamed reply")
    prefill_timeout: float = Field(120.0, gt=0, description="from prefill sent to its whole reply")
    first_token_timeout: float = Field(
        120.0, gt=0, description="from decode sent to a stream's first event with content, however late its headers"
    )
    idle_timeout: float = Field(
        120.0,
        gt=0,
        description="between two events with content of a stream; comments, pings and roles do not count",
    )
    unary_timeout: float = Field(3600.0, gt=0, description="from decode sent to the whole of a unary reply")
    health_interval: float = Field(1.0, gt=0, description="between two health checks of an engine")
    health_timeout: float = Field(5.0, gt=0, description="for one health check")
    health_failures: int = Field(3, ge=1, description="failed checks in a row that take an engine out")
    owner_lease: float = Field(
        10.0,
        gt=0,
        description="how long after its last heartbeat a gateway counts as dead, and its requests as expired",
    )
    live_ttl: float = Field(86400.0, gt=0, description="longest life of a running request's record")
    record_ttl: float = Field(3600.0, gt=0, description="how long the record of an ended request is kept")
    audio_ttl: float = Field(
        3600.0, gt=0, description="how long a spoken answer can be referred to by its audio id in later messages"
    )
    load_ttl: float = Field(3600.0, gt=0, description="when a request that was never freed leaves an engine's load")
    load_interval: float = Field(
        0.25, gt=0, description="between two looks at the load of all replicas, and at operators' orders"
    )
    shutdown_grace: float = Field(30.0, ge=0, description="how long running requests may take to end at shutdown")
    unsplit: Literal["allow", "refuse"] = Field(
        "allow",
        description="what happens to a request that cannot be split rightly: one decode engine runs it whole "
        "(counted), or it is refused",
    )

    @property
    def discovers(self) -> bool:
        """Whether engines may come that no setting names by its address."""
        names = (*self.prefill, *self.decode, *self.talkers, *self.code2wavs)
        return self.registry or self.engines_file is not None or any(url.startswith("dns+") for url in names)

    @property
    def admin_address(self) -> str:
        """Where the admin port listens, if there is one."""
        return self.admin_host or self.host

    @field_validator("admin_key", "engine_api_key")
    @classmethod
    def _no_blank(cls, key: SecretStr | None) -> SecretStr | None:
        """A variable that was meant to hold a key, and is empty, must not open what the key closes."""
        if key is not None and not key.get_secret_value().strip():
            raise ValueError("the key is empty; expected a key, or leave the setting out")
        return key

    @field_validator("prefill", "decode", "talkers", "code2wavs", "api_key", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(value.replace(",", " ").split())
        return value
