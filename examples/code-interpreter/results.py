"""What Jupyter's messages are on the wire of the code interpreter."""

import time

# Names of the representations that clients know. Others are passed on as extra.
NAMES = {
    "text/plain": "text", "text/html": "html", "text/markdown": "markdown", "text/latex": "latex",
    "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf",
    "application/json": "json", "application/javascript": "javascript", "e2b/data": "data", "e2b/chart": "chart",
}


def output(message):
    """Gives the line for a message of the kernel, or None if clients do not hear of it."""
    kind, content = message["msg_type"], message["content"]
    if kind == "stream":
        return {"type": content["name"], "text": content["text"], "timestamp": time.time_ns()}
    if kind in ("execute_result", "display_data"):
        return result(content["data"], kind == "execute_result")
    if kind == "error":
        return {"type": "error", "name": content["ename"], "value": content["evalue"], "traceback": "\n".join(content["traceback"])}
    if kind == "execute_input":
        return {"type": "number_of_executions", "execution_count": content["execution_count"]}
    return None


def result(data, main):
    line = {"type": "result", "is_main_result": main}
    extra = {}
    for mime, value in data.items():
        if mime in NAMES:
            line[NAMES[mime]] = value
        else:
            extra[mime] = value
    text = line.get("text", "")
    if len(text) > 1 and text[0] == text[-1] == "'":
        line["text"] = text[1:-1]  # clients want the string, not how Python would write it
    if extra:
        line["extra"] = extra
    return line
