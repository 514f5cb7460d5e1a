"""Tests of the matrix's own machinery: python3 -m unittest discover tests/compatibility"""

import platform
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from matrix import case, compare, hidden, page, recipe, standin, statistics


class Comparing(unittest.TestCase):
    def test_equal_lines_are_equal(self):
        self.assertIsNone(compare.difference("a: 1\nb: 2\n", "a: 1\nb: 2\n"))

    def test_what_differs_is_quoted(self):
        self.assertEqual(compare.difference("a: 1\nb: 2\n", "a: 1\nb: 3\n"), "natively 'b: 2', through Outboard 'b: 3'")
        self.assertIn("nothing", compare.difference("a: 1\nb: 2\n", "a: 1\n"))
        self.assertIn("nothing", compare.difference("a: 1\n", "a: 1\nb: 2\n"))

    def test_information_is_not_compared(self):
        self.assertIsNone(compare.difference("info 3 ms\na: 1\n", "a: 1\ninfo 4 ms\n"))

    def test_a_tolerance_is_kept(self):
        self.assertIsNone(compare.difference("x ~1e-05: 1.0 nan\n".replace(" nan", ""), "x ~1e-05: 1.000001\n"))
        self.assertIsNotNone(compare.difference("x ~1e-05: 1.0\n", "x ~1e-05: 1.001\n"))
        self.assertIsNotNone(compare.difference("x ~1e-05: 1.0 2.0\n", "x ~1e-05: 1.0\n"))
        self.assertIsNotNone(compare.difference("x ~1e-05: 1.0\n", "x ~1e-01: 1.0\n"))
        self.assertIsNotNone(compare.difference("x ~1e-05: 1.0\n", "x ~1e-05: nan\n"))

    def test_the_telling_line_is_found(self):
        error = compare.first_error("fine\n", "Traceback\nRuntimeError: CUDA error: x\nwarning: leaked\n")
        self.assertEqual(error, "RuntimeError: CUDA error: x")
        self.assertEqual(compare.first_error("", ""), "it said nothing")


class Cases(unittest.TestCase):
    def test_all_headers_can_be_read(self):
        cases = case.discover()
        self.assertGreater(len(cases), 5)
        self.assertEqual(len({item.name for item in cases}), len(cases))
        self.assertTrue(any(item.software for item in cases))

    def test_variants_are_cases(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "group/x.py"
            path.parent.mkdir()
            path.write_text('#: title = "t"\n#: env = { A = "1" }\n#: variants = { b = { B = "2" }, c = {} }\n')
            found = case.discover(Path(folder))
            self.assertEqual([item.name for item in found], ["group/x.b", "group/x.c"])
            self.assertEqual(found[0].env, {"A": "1", "B": "2"})
            path.write_text('#: title = "t"\n#: tiemout = 5\n')
            with self.assertRaisesRegex(ValueError, "tiemout"):
                case.discover(Path(folder))

    def test_selection(self):
        cases = case.discover()
        self.assertEqual({item.group for item in case.select(cases, ["cuda"], [], [], False)}, {"cuda"})
        self.assertEqual([item.name for item in case.select(cases, [], ["cuda/prin*"], [], False)], ["cuda/printf"])
        self.assertNotIn("cuda/printf", [item.name for item in case.select(cases, ["cuda"], [], ["printf"], False)])
        self.assertEqual(case.select(cases, ["cuda"], ["no such case"], [], False), [])


class Isolation(unittest.TestCase):
    def test_only_libraries_of_the_driver_are_hidden(self):
        for name in ("libcuda.so", "libcuda.so.1", "libcuda.so.580.1.2", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.580.1"):
            self.assertTrue(hidden.DRIVER_FILES.match(name), name)
        for name in ("libcudart.so.13", "libcublas.so.13", "libcudnn.so.9", "libnvrtc.so.13"):
            self.assertIsNone(hidden.DRIVER_FILES.match(name), name)


class Page(unittest.TestCase):
    def row(self, **changes):
        run = {"ok": True, "ended": "ok", "seconds": 1.0, "stdout": "a: 1\n"}
        return {"name": "torch/x", "group": "torch", "title": "T", "result": "passes", "native": run, "remote": run} | changes

    def test_rows(self):
        self.assertEqual(page.equal(self.row()), "equal")
        self.assertEqual(page.equal(self.row(result="differs")), "**no**")
        refused = {"refused": {"cuIpcGetMemHandle": 2}}
        row = self.row(result="fails", error="a | b", statistics=refused)
        self.assertEqual(page.reason(row, {}), "a \\| b; not supported: `cuIpcGetMemHandle`")
        self.assertEqual(page.reason(row, {"torch/x": "known"}), "known")
        self.assertEqual(page.cell("in /a/b-1/c.py: 1/2\n x"), "in c.py: 1/2 x")

    def test_a_whole_page(self):
        results = {"machine": {"driver": "1"}, "packages": {}, "rows": [self.row(), self.row(result="fails")]}
        text = page.render(results, None)
        self.assertIn("| PyTorch | 1 of 2 pass (1 fails) |", text)

    def test_samples_pass_by_their_own_check_and_their_outputs_are_told(self):
        outputs = ("same", "same", "varies", "**differs**")
        rows = [self.row(name=f"s{number}", output=output) for number, output in enumerate(outputs)]
        rows += [self.row(name="s4", result="fails"), {"name": "s5", "result": "left out"}]
        text = page.render({"machine": {}, "packages": {}, "rows": [self.row()]}, {"release": "release 1", "rows": rows})
        self.assertIn("| NVIDIA's samples | 4 of 5 that pass natively |", text)
        self.assertIn("\n## NVIDIA's cuda-samples\n\nFrom release 1. Each", text)
        self.assertIn("of those that pass, 2 print the same both times, 1 vary (a second", text)
        self.assertIn("and 1 differ, each", text)


class Statistics(unittest.TestCase):
    def test_processes_are_summed(self):
        with tempfile.TemporaryDirectory() as folder:
            for number, code in ((1, 801), (2, 801), (4, 1)):
                text = f'{{"entered": 5, "posted": 2, "waited": 1, "errors": {{"cuA": {{"count": 2, "last": {code}}}}}}}'
                (Path(folder) / f"{number}.json").write_text(text)
            (Path(folder) / "3.json").write_text("{broken")
            counted = statistics.collect(Path(folder))
        self.assertEqual((counted["calls"], counted["refused"], counted["failed"]), (15, {"cuA": 4}, {"cuA=1": 2}))


class Recipes(unittest.TestCase):
    def test_each_program_has_recipes_and_each_recipe_a_program(self):
        programs = recipe.programs(Path("nowhere"))
        self.assertEqual(set(programs), {item.group for item in recipe.cases()})
        for item in recipe.cases():
            for library in item.cuda:
                self.assertTrue(library == "libnvrtc.so" or library in standin.LATER, library)

    def test_the_software_device_leaves_slow_ones_out(self):
        chosen = lambda **options: {item.name for item in case.select(recipe.cases(), [], [], [], **options)}  # noqa: E731
        self.assertIn("hashcat/crack.md5", chosen(software=True))
        self.assertNotIn("hashcat/crack.sha1", chosen(software=True))
        self.assertEqual(chosen(software=True, slow=True), chosen(software=False))

    def test_needed_functions_are_read_of_a_listing(self):
        listing = (
            "0000000000000000      DF *UND*  0000000000000000 (libcufft.so.10) cufftDestroy\n"
            "0000000000000000      DF *UND*  0000000000000000 (GLIBC_2.2.5) free\n"
            "000000000012ee50 g    DF .text  000000000000001c  libcufft.so.12 cufftPlan1d\n"
        )
        found = [(match["library"], match["name"]) for match in standin.NEEDED.finditer(listing)]
        self.assertEqual(found, [("libcufft.so.10", "cufftDestroy")])

    def test_a_stand_in_has_its_own_functions_once(self):
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder) / "own.c"
            own.write_text("int cufftDestroy(int plan)\n{\n    return plan;\n}\n")
            text = standin.source("libcufft.so.10", {"cufftDestroy", "cufftPlan1d"}, own)
        self.assertEqual(text.count("cufftDestroy"), 1)
        self.assertIn("first_cufftPlan1d", text)

    @unittest.skipUnless(shutil.which("gcc") and platform.machine() == "x86_64", "stand-ins are compiled for x86-64")
    def test_a_stand_in_calls_the_later_library_with_all_arguments(self):
        # A library in the place of cuFFT 12, and a program linked with cuFFT 10.
        later = "double cufftPlan1d(%s) { return a + 10 * b + 100 * c + 1000 * d + 1e4 * e + 1e5 * f + 1e6 * x + 1e7 * y; }"
        declared = "long a, long b, long c, long d, long e, long f, double x, double y"
        program = f"#include <stdio.h>\ndouble cufftPlan1d({declared});\nint cufftDestroy(int plan);\n"
        program += 'int main(int n, char **v) { if (n > 1) return cufftDestroy(0);\n for (int i = 0; i < 2; i++)'
        program += ' printf("%.0f\\n", cufftPlan1d(1, 2, 3, 4, 5, 6, 7, 8)); }\n'
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "later.c").write_text(later % declared)
            (folder / "old.c").write_text(later % declared + "\nint cufftDestroy(int plan) { return plan; }\n")
            (folder / "old.map").write_text("libcufft.so.10 { global: *; };\n")
            (folder / "program.c").write_text(program)
            gcc = lambda *words: subprocess.run(["gcc", *words], cwd=folder, check=True)  # noqa: E731
            gcc("-shared", "-fPIC", "-o", "libcufft.so.12", "later.c")
            names = ["-Wl,-soname,libcufft.so.10", "-Wl,--version-script=old.map"]
            gcc("-shared", "-fPIC", *names, "-o", "libcufft.so.10", "old.c")
            gcc("-o", "program", "program.c", "./libcufft.so.10")
            standin.build([folder / "program"], folder / "stand-in", {})
            env = {"LD_LIBRARY_PATH": f"{folder}/stand-in:{folder}"}
            run = lambda *words: subprocess.run(  # noqa: E731
                [folder / "program", *words], env=env, capture_output=True, text=True, check=False
            )
            self.assertEqual(run().stdout, "87654321\n87654321\n")
            missing = run("missing")
        self.assertLess(missing.returncode, 0)
        self.assertIn("calls cufftDestroy of libcufft.so.10, and no later library has it", missing.stderr)

    def test_the_page_keeps_what_other_results_wrote(self):
        rows = [{"name": "starpu/x", "group": "starpu", "title": "T", "result": "left out", "reason": "why"}]
        about = {"starpu": {"title": "StarPU", "about": "tasks", "package": "starpu=1"}}
        section = page.programs_section({"rows": rows, "programs": about, "devices": [{"name": "D"}]})
        self.assertIn("| `x`: T | – | – | – | why |", section)
        self.assertEqual(page.split("# A\n" + section), ("# A\n", section))
        self.assertEqual(page.split("# A\n" + section + "\n## B\n"), ("# A\n\n## B\n", section))
        self.assertEqual(page.split("# A\n"), ("# A\n", ""))


if __name__ == "__main__":
    unittest.main()
