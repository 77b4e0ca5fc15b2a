"""Debian's nginx with `deploy/nginx.conf`, before gateways that are processes of their own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from string import Template

import httpx
import pytest

from common.ports import free_ports
from common.process import Child
from tests.awaiting import until
from tests.integration.conftest import World

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "deploy" / "nginx.conf"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
LEASE = 15.0
"""Seconds after which a gateway that was killed counts as dead: longer than one stands still that lives."""
READY_WITHIN = 60.0
"""Seconds until what was started answers."""

AROUND = """
daemon off;
pid $folder/nginx.pid;
error_log $folder/error.log;
events { worker_connections 4096; }
http {
    access_log off;
    client_body_temp_path $folder/body;
    proxy_temp_path $folder/proxy;
    fastcgi_temp_path $folder/fastcgi;
    uwsgi_temp_path $folder/uwsgi;
    scgi_temp_path $folder/scgi;
    include $folder/duet.conf;
}
"""


def filled(listen: str, gateways: Sequence[str]) -> str:
    """`deploy/nginx.conf` as nginx's container fills it in: what is not set stays as it is."""
    values = {"DUET_LISTEN": listen, **{f"DUET_GATEWAY_{i}": at for i, at in enumerate(gateways, 1)}}
    return Template(TEMPLATE.read_text()).safe_substitute(values)


def _write(folder: Path, listen: str, gateways: Sequence[str]) -> None:
    folder.chmod(0o755)  # its workers are somebody else, where it is started by root
    (folder / "duet.conf").write_text(filled(listen, gateways))
    (folder / "nginx.conf").write_text(Template(AROUND).substitute(folder=folder))


@asynccontextmanager
async def balancer(gateways: Sequence[str], folder: Path) -> AsyncIterator[str]:
    """Its base URL. `gateways` are `host:port`."""
    if NGINX is None:
        pytest.skip("no nginx on this machine: Debian's package is `nginx-light`; make test installs it as root")
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    _write(folder, listen, gateways)
    command = [NGINX, "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with Child("nginx", command, log=folder / "nginx.log") as child:
        await ready(child, f"http://{listen}")
        yield f"http://{listen}"


def gateway(world: World, name: str, port: int, folder: Path, *, lease: float = LEASE) -> Child:
    """A gateway before the world's engines, that can be killed; `lease` is its owner's, in seconds."""
    assert world.prefill is not None
    assert world.decode is not None
    command = [sys.executable, "-m", "cli.main", "gateway", "--port", str(port), "--redis-url", world.redis_url]
    command += ["--prefill", world.prefill[1], "--decode", world.decode[1]]
    env = {"DUET_REDIS_PREFIX": world.prefix, "DUET_OWNER_LEASE": str(lease)}
    return Child(name, command, log=folder / f"{name}.log", env=env)


async def ready(child: Child, url: str, *, within: float = READY_WITHIN) -> None:
    async def answers() -> bool:
        assert child.running, child.tail()
        try:
            async with httpx.AsyncClient() as client:
                return (await client.get(f"{url}/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    await until(answers, f"{child.name} answers", within=within)
