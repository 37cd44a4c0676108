"""Drives `dsec mcp` with the mcp package: prints "ok" when everything was as documented."""

import asyncio
import sys

import mcp
from mcp.client.stdio import StdioServerParameters, stdio_client


async def main(dsec: str, url: str, key: str) -> None:
    params = StdioServerParameters(command=dsec, args=["mcp"], env={"DSEC_URL": url, "DSEC_API_KEY": key})
    async with stdio_client(params) as (read, write), mcp.ClientSession(read, write) as client:
        await client.initialize()
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == {"create", "exec", "read", "write", "list", "stop"}, tools

        async def call(tool: str, **arguments: object) -> dict:
            # The client checks what comes back against the tool's output schema.
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result
            return result.structured_content

        session = (await call("create"))["session"]
        await call("write", session=session, path="main.py", content="print(6 * 7)")
        ran = await call("exec", session=session, script="python3 main.py; exit 5")
        assert (ran["stdout"], ran["exit_code"]) == ("42\n", 5), ran
        assert (await call("read", session=session, path="main.py"))["content"] == "print(6 * 7)"
        failed = await client.call_tool("read", {"session": session, "path": "/nope"})
        assert failed.is_error and failed.structured_content["error"]["class"] == "user", failed
        assert (await call("stop", session=session))["phase"] == "COMPLETED"
        assert (await call("list"))["sessions"] == []
        await call("create")  # ends with the connection
    print("ok")


asyncio.run(main(*sys.argv[1:]))
