"""`python -m outboard [FLAGS] SCRIPT.py ARGUMENTS...`: what `outboard run` does, for this interpreter."""

import os
import sys
from typing import List, NoReturn

from ._command import Error, find

USAGE = """usage: python -m outboard [FLAGS] SCRIPT.py ARGUMENTS...
       python -m outboard [FLAGS] -m MODULE ARGUMENTS...
       python -m outboard [FLAGS] -c CODE ARGUMENTS...
       python -m outboard [FLAGS] -- PROGRAM ARGUMENTS...

FLAGS are those of `outboard run`, each with its value behind `=`: --server=gpu1, --local-cpu, --context=NAME.
`--server gpu1`, in two words, is understood too."""

# The flags of `outboard run` whose value may be the next word.
WITH_VALUE = {"--server", "--context", "--config", "--token-file", "--fingerprint", "--tls-fingerprint", "--tls-ca", "--tls-cert", "--tls-key", "--tls"}


def command_line(words: List[str]) -> List[str]:
    """`outboard run` with its flags and the program. An empty one if the words name no program."""
    at = 0
    while at < len(words) and words[at].startswith("--") and words[at] != "--":
        at += 2 if words[at] in WITH_VALUE else 1
    flags, program = words[:at], words[at:]
    if program[:1] == ["--"]:
        program = program[1:]
    elif program:
        program = [sys.executable, *program]
    return ["outboard", "run", *flags, "--", *program] if program else []


def main() -> NoReturn:
    words = sys.argv[1:]
    line = [] if words[:1] in (["--help"], ["-h"]) else command_line(words)
    if not line:
        is_help = words[:1] in (["--help"], ["-h"])
        print(USAGE, file=sys.stdout if is_help else sys.stderr)
        sys.exit(0 if is_help else 2)
    try:
        command = find()
    except Error as error:
        sys.exit(f"outboard: {error}")
    sys.stdout.flush()
    os.execv(command, line)


if __name__ == "__main__":
    main()
