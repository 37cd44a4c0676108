"""inspect-ai's own checks of a sandbox, every one of them."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from dsec.inspect import DSecSandboxConfig, DSecSandboxEnvironment

CONFIG = DSecSandboxConfig(template="debian", spec={"fs": {"rootfs": "writable", "writable_size_limit": "400Mi"}, "mem_limit": "1Gi"})

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared() -> AsyncIterator[DSecSandboxEnvironment]:
    await DSecSandboxEnvironment.task_init("startup", CONFIG)
    made = await DSecSandboxEnvironment.sample_init("self check", CONFIG, {})
    yield made["default"]
    await DSecSandboxEnvironment.sample_cleanup("self check", CONFIG, made, False)
    await DSecSandboxEnvironment.task_cleanup("shutdown", CONFIG, True)


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox_env(shared: DSecSandboxEnvironment) -> DSecSandboxEnvironment:
    return shared
