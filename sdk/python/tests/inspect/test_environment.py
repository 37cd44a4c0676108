"""Boxes under inspect-ai, beside what its own checks look at."""

from importlib.metadata import entry_points
from pathlib import Path

import anyio
import pytest
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import TaskState, generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironmentSpec,
    SandboxUnavailableError,
    sandbox,
)
from inspect_ai.util._sandbox.limits import override_max_exec_output_size
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv

import dsec
from dsec.inspect import DSecSandboxConfig, DSecSandboxEnvironment


@scorer(metrics=[accuracy()])
def made_the_file() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        content = await sandbox().read_file("answer.txt")
        return Score(value=content.strip() == target.text)

    return score


def agent() -> list[ModelOutput]:
    return [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat question.txt; expr 6 \\* 7 > answer.txt"}),
        ModelOutput.from_content("mockllm/model", "done"),
    ]


async def live() -> list[str]:
    async with dsec.AsyncClient(lease_ttl=None) as client:
        labels = {"inspect-ai": "sandbox"}
        return [s.id async for s in client.list(labels=labels, phases=["RUNNING", "SUSPENDED"])]


@pytest.mark.asyncio
async def test_an_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(await live())
    task = Task(
        dataset=[Sample(input="what is it?", target="42", files={"question.txt": "6 * 7"}) for _ in range(3)],
        solver=[use_tools(bash(timeout=30)), generate()],
        scorer=made_the_file(),
        sandbox=SandboxEnvironmentSpec("dsec", DSecSandboxConfig(spec={"mem_limit": "128Mi"})),
    )
    model = get_model("mockllm/model", custom_outputs=agent() * 3)

    async def guess(text: str) -> int:  # else it would fetch an encoding's tables
        return len(text)

    monkeypatch.setattr(model.api, "count_text_tokens", guess)
    (log,) = await eval_async(task, model=model, log_dir=str(tmp_path), max_samples=1)
    assert log.status == "success", (log.error, [m.text for m in log.samples[0].messages] if log.samples else None)
    assert log.results is not None and log.results.scores[0].metrics["accuracy"].value == 1.0
    assert log.samples and any("6 * 7" in m.text for m in log.samples[0].messages)
    assert set(await live()) == before


@pytest.mark.asyncio
async def test_several_boxes_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "dsec.yaml"
    file.write_text(
        "spec: {mem_limit: 64Mi}\nenv: {A: outer}\nsandboxes:\n"
        "  other: {env: {A: inner}}\n  default: {working_dir: /tmp, user: root}\n"
    )
    assert DSecSandboxEnvironment.config_files() == ["dsec.yaml"]
    await DSecSandboxEnvironment.task_init("startup", str(file))
    made = await DSecSandboxEnvironment.sample_init("t", str(file), {})
    assert list(made) == ["default", "other"]
    told = [(await e.exec(["sh", "-c", "echo $A; pwd; id -un"])).stdout.split() for e in made.values()]
    assert told == [["outer", "/tmp", "root"], ["inner", "/workspace", "user"]]
    connection = await made["default"].connection()
    assert connection.command.startswith("dsec shell -u root s")
    await DSecSandboxEnvironment.sample_cleanup("t", str(file), made, True)
    assert len(await live()) >= 2  # an interrupted sample's boxes wait for the end
    await DSecSandboxEnvironment.task_cleanup("shutdown", str(file), False)
    left = {e.as_type(DSecSandboxEnvironment).session.id for e in made.values()}
    assert left <= set(await live())  # on request, with --no-sandbox-cleanup
    for id in left:
        await DSecSandboxEnvironment.cli_cleanup(id)
    assert not left & set(await live())
    with pytest.raises(ValueError):
        DSecSandboxEnvironment.config_deserialize({"tempalte": "x"})


@pytest.mark.asyncio
async def test_whose_failure_it_is() -> None:
    await DSecSandboxEnvironment.task_init("startup", None)
    made = await DSecSandboxEnvironment.sample_init("t", None, {})
    box = made["default"]
    missing = await box.exec(["no-such-program"])
    assert (missing.success, missing.returncode) == (False, 127) and "no-such-program" in missing.stderr
    with override_max_exec_output_size(1000), pytest.raises(OutputLimitExceededError) as over:
        await box.exec(["sh", "-c", "seq 100000"])
    assert over.value.truncated_output and over.value.truncated_output.startswith("1\n2\n")
    with pytest.raises(TimeoutError), anyio.fail_after(0.5):
        await box.exec(["sh", "-c", "exec sleep 12345"])
    running = await box.as_type(DSecSandboxEnvironment).session.operations()
    assert not [op for op in running if op.running]
    await box.write_file("binary", b"\xff\xfe")
    with pytest.raises(UnicodeDecodeError):
        await box.read_file("binary")
    with pytest.raises(PermissionError):
        await box.write_file("/etc/passwd", "x")
    await box.as_type(DSecSandboxEnvironment).session.stop()
    with pytest.raises(SandboxUnavailableError):
        await box.exec(["true"])
    with pytest.raises(SandboxUnavailableError):
        await box.read_file("binary")
    with pytest.raises(ConnectionError):
        await box.connection()
    await DSecSandboxEnvironment.sample_cleanup("t", None, made, False)
    await DSecSandboxEnvironment.task_cleanup("shutdown", None, True)


def test_it_is_found_by_its_name() -> None:
    (found,) = entry_points(group="inspect_ai", name="dsec")
    assert found.load().DSecSandboxEnvironment is registry_find_sandboxenv("dsec")
