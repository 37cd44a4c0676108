#!/usr/bin/env python3
"""Check the results of a rollout of human-eval on its own terms, not by the verdicts.

Every task must have been played --group times, and in every rollout the first test (of the
wrong attempt) must have ended with another exit code than 0, the second (of the
canonical solution) with 0, neither by a time-out or a limit.

    check_results.py --group 4 tasks.jsonl results.jsonl
"""

import argparse
import collections
import json
import sys


def faults_of(result):
    tests = [s for s in result["steps"] if s["kind"] == "check"]
    if len(tests) != 2:
        return [f"{len(tests)} tests were run, not 2: {result.get('message', '')}"]
    faults = []
    for what, test, right in (("the wrong attempt", tests[0], lambda code: code > 0), ("the canonical solution", tests[1], lambda code: code == 0)):
        if test.get("timed_out") or test.get("oom") or test.get("limit") or test.get("signal") or not right(test.get("exit", -1)):
            faults.append(f"{what} ended with {test}")
    return faults


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    ap.add_argument("--group", type=int, default=1, help="rollouts of each task")
    ap.add_argument("tasks")
    ap.add_argument("results")
    args = ap.parse_args()
    with open(args.tasks, encoding="utf-8") as f:
        tasks = [json.loads(line)["id"] for line in f]
    with open(args.results, encoding="utf-8") as f:
        results = [json.loads(line) for line in f]
    faults = [f"{r['task']} #{r['index']}: {fault}" for r in results for fault in faults_of(r)]
    played = collections.Counter(r["task"] for r in results if r["verdict"] == "pass")
    faults += [f"{t}: passed {played[t]} times, not {args.group}" for t in tasks if played[t] != args.group]
    for fault in faults:
        print("check_results:", fault, file=sys.stderr)
    if faults or not tasks:
        sys.exit(1)
    n = len(results)
    print(f"{len(tasks)} problems x {args.group}: {n} wrong attempts failed, {n} canonical solutions passed")


if __name__ == "__main__":
    main()
