"""Libraries of CUDA 11 for programs linked with them: small ones of the same names that call those of a later CUDA.

The libraries themselves have 350 MB, and what they hold for recent GPUs is machine code, which the software device cannot
run. A stand-in has the symbols, with their versions, that some programs need of a library. At the first call of each it
loads a later library by its name; if none has the function, it says so and ends the program.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

# What programs ask for, and what is loaded instead: the first that is there.
LATER = {
    "libcufft.so.10": ["libcufft.so.12", "libcufft.so.11"],
    "libcublas.so.11": ["libcublas.so.13", "libcublas.so.12"],
    "libcusparse.so.11": ["libcusparse.so.12"],
    # Its name has not changed since, and a library cannot load another of its own name.
    "libcurand.so.10": [],
}

HEAD = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const later[] = {%(later)s 0};

static void *find(const char *name)
{
    void *symbol = 0;
    for (int i = 0; later[i] && !symbol; i++) {
        void *library = dlopen(later[i], RTLD_NOW);
        if (library)
            symbol = dlsym(library, name);
    }
    if (!symbol) {
        fprintf(stderr, "stand-in: the program calls %%s of %(soname)s, and no later library has it: tried %(tried)s\n",
                name);
        abort();
    }
    return symbol;
}

__attribute__((visibility("hidden"))) void *stand_in_find(const char *name)
{
    return find(name);
}

/* Looks the function up whose name and slot are on the stack, with all arguments of its caller as they were. */
__asm__(".text\n"
        "stand_in_first:\n"
        "    push %%rdi; push %%rsi; push %%rdx; push %%rcx; push %%r8; push %%r9; push %%rax\n"
        "    sub $128, %%rsp\n"
        "    movups %%xmm0, (%%rsp); movups %%xmm1, 16(%%rsp); movups %%xmm2, 32(%%rsp); movups %%xmm3, 48(%%rsp)\n"
        "    movups %%xmm4, 64(%%rsp); movups %%xmm5, 80(%%rsp); movups %%xmm6, 96(%%rsp); movups %%xmm7, 112(%%rsp)\n"
        "    mov 184(%%rsp), %%rdi\n"
        "    call stand_in_find\n"
        "    mov 192(%%rsp), %%r11\n"
        "    mov %%rax, (%%r11)\n"
        "    movups (%%rsp), %%xmm0; movups 16(%%rsp), %%xmm1; movups 32(%%rsp), %%xmm2; movups 48(%%rsp), %%xmm3\n"
        "    movups 64(%%rsp), %%xmm4; movups 80(%%rsp), %%xmm5; movups 96(%%rsp), %%xmm6; movups 112(%%rsp), %%xmm7\n"
        "    add $128, %%rsp\n"
        "    mov %%rax, %%r11\n"
        "    pop %%rax; pop %%r9; pop %%r8; pop %%rcx; pop %%rdx; pop %%rsi; pop %%rdi\n"
        "    add $16, %%rsp\n"
        "    jmp *%%r11\n");
"""

FORWARD = r"""
__asm__(".globl %(name)s\n.type %(name)s, @function\n%(name)s: jmp *slot_%(name)s(%%rip)\n"
        "first_%(name)s:\n"
        "    lea slot_%(name)s(%%rip), %%r11; push %%r11\n"
        "    lea name_%(name)s(%%rip), %%r11; push %%r11\n"
        "    jmp stand_in_first\n"
        ".section .rodata\nname_%(name)s: .asciz \"%(name)s\"\n"
        ".data\n.balign 8\nslot_%(name)s: .quad first_%(name)s\n.text\n");
"""

# A line of `objdump -T` of a symbol that a program needs: "… *UND* 0000000000000000 (libcufft.so.10) cufftDestroy".
NEEDED = re.compile(r"\*UND\*\s+\S+\s+\((?P<library>lib\S+)\)\s+(?P<name>\w+)$", re.MULTILINE)


def needed(programs: list[Path]) -> dict[str, set[str]]:
    """The functions that programs need, by the library's name, of those that something stands in for."""
    found: dict[str, set[str]] = {}
    for path in programs:
        listing = subprocess.run(["objdump", "-T", str(path)], capture_output=True, text=True, check=True).stdout
        for match in NEEDED.finditer(listing):
            if match["library"] in LATER:
                found.setdefault(match["library"], set()).add(match["name"])
    return found


# A function that a C file of a recipe defines itself.
DEFINED = re.compile(r"^int (?P<name>\w+)\(", re.MULTILINE)


def source(soname: str, names: set[str], own: Path | None) -> str:
    """The program text of a stand-in: the recipe's own functions, and calls of a later library for the others."""
    later = LATER[soname]
    text = HEAD % {"later": "".join(f'"{name}", ' for name in later), "soname": soname, "tried": ", ".join(later) or "none"}
    written = own.read_text() if own else ""
    for name in sorted(names - {match["name"] for match in DEFINED.finditer(written)}):
        text += FORWARD % {"name": name}
    return text + written


def build(programs: list[Path], folder: Path, own: dict[str, Path], only: bool = False) -> None:
    """Compiles what stands in for the libraries that these programs need. `own` has C files with functions of a recipe's
    own; `only`: for no other library."""
    missing = [tool for tool in ("gcc", "objdump") if not shutil.which(tool)]
    if missing:
        sys.exit(f"{' and '.join(missing)} cannot be found: install gcc and binutils, or use what `programs.py pack` made")
    folder.mkdir(parents=True, exist_ok=True)
    for soname, names in needed(programs).items():
        if only and soname not in own:
            continue
        code, versions = folder / f"{soname}.c", folder / f"{soname}.map"
        code.write_text(source(soname, names, own.get(soname)))
        versions.write_text(f"{soname} {{ global: {' '.join(f'{name};' for name in sorted(names))} local: *; }};\n")
        words = ["gcc", "-O2", "-shared", "-fPIC", "-s", f"-Wl,-soname,{soname}", f"-Wl,--version-script={versions}"]
        subprocess.run([*words, "-o", str(folder / soname), str(code), "-ldl"], check=True)
        code.unlink()
        versions.unlink()
