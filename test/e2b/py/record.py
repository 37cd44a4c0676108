"""Notes which public calls a case makes, with which options, without changing what they do; and lists which there are."""

import dataclasses
import enum
import functools
import inspect
import re
import typing

calls: set = set()
_muted = 0

# What is no call for users: carries of the wire, and plain values.
INTERNAL = {"ApiClient", "ConnectionConfig", "VolumeConnectionConfig", "ProxyTypes", "Username", "PtyOutput", "Stdout", "Stderr", "MIMEType"}
# What is part of every call's contract is listed once, under its own name.
SHARED = {"ApiParams": "ConnectionOpts", "VolumeApiParams": "VolumeApiOpts"}
# Of what an SDK's own plumbing uses, users do not set these.
HIDDEN = {"debug", "api_url", "sandbox_url"}
NESTED = {"Sandbox.create": ("network", "lifecycle"), "Sandbox.list": ("query",)}


class mute:
    """Refused calls are declared by hand."""

    def __enter__(self):
        global _muted
        _muted += 1

    def __exit__(self, *_):
        global _muted
        _muted -= 1


def camel(name):
    return re.sub(r"_(\w)", lambda m: m[1].upper(), name)


def class_name(c):
    return re.sub(r"^Async", "", c.__name__).replace("TemplateBuilder", "Template").replace("TemplateBase", "Template").replace("TemplateFinal", "Template")


def public_classes(modules, flavour):
    """Gives the classes whose methods are calls, of one flavour: sync or async."""
    found = {}
    for m in modules:
        for name in getattr(m, "__all__", dir(m)):
            c = getattr(m, name, None)
            if not inspect.isclass(c) or not c.__module__.startswith("e2b") or name in INTERNAL:
                continue
            if issubclass(c, (BaseException, dict, enum.Enum, str)):
                continue
            found[c] = None
    for c in list(found):
        for v in vars(c).values():  # the parts of a sandbox, by what their properties are declared to return
            if isinstance(v, property) and (r := typing.get_type_hints(v.fget).get("return")) and inspect.isclass(r) and r.__module__.startswith("e2b") and r.__name__ not in INTERNAL:
                found[r] = None
    for c in list(found):
        for v in vars(c).values():  # builders and handles, by what methods are declared to return
            try:
                r = typing.get_type_hints(inspect.unwrap(v)).get("return") if inspect.isfunction(v) else None
            except (NameError, TypeError):
                continue
            if inspect.isclass(r) and r.__module__.startswith("e2b") and not issubclass(r, (BaseException, dict, enum.Enum, str)) and r.__name__ not in INTERNAL:
                found[r] = None
    pairs = {c.__name__[5:] for c in found if c.__name__.startswith("Async")}
    other = "sandbox_async" if flavour == "sync" else "sandbox_sync"

    def ours(c):
        if other in c.__module__:
            return False
        if flavour == "sync":
            return not c.__name__.startswith("Async")
        return c.__name__.startswith("Async") or c.__name__ not in pairs

    return [c for c in found if ours(c)]


def members(c, listed=()):
    for name in dir(c):
        definer = next((b for b in c.__mro__ if name in vars(b)), c)
        if name.startswith("_") or definer in listed and class_name(definer) != class_name(c):
            continue  # what is inherited from another public class is that one's
        static = inspect.getattr_static(c, name)
        if isinstance(static, property) or callable(getattr(c, name, None)):
            yield name, static


def fields(t):
    if dataclasses.is_dataclass(t):
        return [f.name for f in dataclasses.fields(t)]
    return list(getattr(t, "__annotations__", {}))


def options(c, name, call):
    owner = class_name(c)
    try:
        parameters = inspect.signature(getattr(c, name)).parameters.values()
        hints = typing.get_type_hints(inspect.unwrap(getattr(c, name)))
    except (TypeError, ValueError, NameError):
        return
    for p in parameters:
        if p.kind is p.VAR_KEYWORD:
            for known in re.findall(r"\b(ApiParams|VolumeApiParams)\b", str(p.annotation)):
                import e2b

                t = getattr(e2b, known, None) or getattr(__import__("e2b.connection_config", fromlist=["x"]), known)
                yield from (f"{SHARED[known]}:{camel(f)}" for f in fields(t) if f not in HIDDEN)
        elif p.name in ("self", "cls") or p.default is p.empty or p.kind is p.VAR_POSITIONAL:
            continue
        elif p.name == "request_timeout":
            yield "ConnectionOpts:requestTimeout"
        elif owner == "Git" and p.name in ("envs", "user", "cwd", "timeout"):
            yield f"GitRequestOpts:{p.name}"
        else:
            yield f"{call}:{camel(p.name)}"
            if p.name in NESTED.get(call, ()):
                for t in typing.get_args(hints.get(p.name)):
                    yield from (f"{call}:{camel(p.name)}.{camel(f)}" for f in fields(t))


FUNCTIONS = re.compile(r"wait_for_\w+|get_signature|default_build_logger")


def enumerate_calls(modules, flavour):
    found = set()
    classes = public_classes(modules, flavour)
    for c in classes:
        if c.__name__ == "E2B":
            found.add("E2B")
        for name, static in members(c, classes):
            call = f"{class_name(c)}.{camel(name)}"
            if isinstance(static, property):
                if class_name(c) != "Sandbox":
                    found.add(call)
                continue
            found.add(call)
            found.update(options(c, name, call))
    for m in modules:
        found.update(camel(n) for n in getattr(m, "__all__", []) if FUNCTIONS.fullmatch(n))
    return sorted(found)


def note(call, names=(), values=()):
    if _muted:
        return
    calls.add(call)
    for n in names:
        calls.add(f"{call}:{camel(n)}")
        if n in known_params:
            calls.add(f"ConnectionOpts:{camel(n)}")
        if call.startswith("Git."):
            calls.add(f"GitRequestOpts:{camel(n)}")
    for n, v in values:
        inner = v if isinstance(v, dict) else {f: getattr(v, f) for f in fields(type(v))} if dataclasses.is_dataclass(v) else {}
        for k, x in inner.items():
            if x is not None and isinstance(k, str):
                calls.add(f"{call}:{camel(n)}.{camel(k)}")


known_params = {"request_timeout", "retries", "headers", "api_headers", "api_key", "access_token", "validate_api_key", "domain", "proxy", "http_version"}


def bound(f, args, kwargs):
    """Names the options that a call gives, positional ones too."""
    try:
        given = inspect.signature(f).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return list(kwargs), list(kwargs.items())
    flat = {}
    for k, v in given.items():
        flat.update(v if k in ("opts", "kwargs") and isinstance(v, dict) else {k: v})
    return [k for k, v in flat.items() if v is not None], list(flat.items())


class Noted:
    """Stands for an attribute of a class and notes its use."""

    def __init__(self, call, static):
        self.call, self.static = call, static

    def __get__(self, obj, owner=None):
        if isinstance(self.static, property):
            if obj is None:
                return self.static
            note(self.call)
            return self.static.__get__(obj, owner)
        f = self.static.__get__(obj, owner) if hasattr(self.static, "__get__") else self.static
        return noted(self.call, f)


def noted(call, f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        note(call, *bound(f, args, kwargs))
        return f(*args, **kwargs)

    return wrapper


def patch(modules, flavour):
    for c in public_classes(modules, flavour):
        for name, static in list(members(c)):
            if isinstance(static, Noted):
                static = static.static
            setattr(c, name, Noted(f"{class_name(c)}.{camel(name)}", static))
        if c.__name__ == "E2B":
            c.__init__ = noted("E2B", c.__init__)
    for m in modules:
        for n in getattr(m, "__all__", []):
            if FUNCTIONS.fullmatch(n):
                setattr(m, n, noted(camel(n), getattr(m, n)))
