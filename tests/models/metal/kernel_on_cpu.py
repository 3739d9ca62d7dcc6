"""The kernel's body, and MLX's own product of one row, compiled for a CPU."""

import subprocess
from pathlib import Path

import mlx
import numpy as np

from akunu_py.cpu import places
from akunu_py.models.metal.few_rows import BODY, HEADER, MatrixForm

HERE = Path(__file__).parent


def of_mlx() -> str:
    """MLX's product of one row, from the headers that come with it."""
    folder = Path(next(iter(mlx.__path__))) / "include/mlx/backend/metal/kernels"
    text = (folder / "quantized.h").read_text(encoding="utf-8")
    end = text.rindex("\ntemplate <", 0, text.index("void qmv_wide_impl("))
    return text[text.index("#define MLX_MTL_CONST") : end]


class KernelOnCPU:
    """A program that multiplies with weights of one form; `number` is "half", "bfloat" or "float"."""

    def __init__(self, folder: Path, bits: int, group_size: int, number: str, *flags: str) -> None:
        self.bits, self.group_size, self.number = bits, group_size, number
        self.error = folder / "error"
        wide, narrow = (MatrixForm(outs, 4096, bits, group_size).values for outs in (8, 7))
        of_rows = {MatrixForm(8, 4096, bits, group_size).tile(rows) for rows in range(1, 17)}
        tiles = " ".join(f"X({rows}, {outputs})" for rows, outputs in of_rows)
        (folder / "form.h").write_text(
            f"typedef {number} Number;\n"
            f"constexpr int FORM_BITS = {bits}, FORM_GROUP = {group_size};\n"
            f"constexpr int WIDE = {wide}, NARROW = {narrow};\n"
            f"#define TILES(X) {tiles}\n"
        )
        (folder / "body.h").write_text(BODY)
        (folder / "mlx_quantized.h").write_text(of_mlx())
        command = [
            *places.compiler(), "-std=c++17", "-ffp-contract=off", "-w", *flags,
            f"-I{HERE}", f"-I{HEADER.parent}", "-I.", str(HERE / "products.cpp"), "-o", "program",
        ]  # fmt: skip
        subprocess.run(command, cwd=folder, check=True)
        with self.error.open("w") as error:
            self._process = subprocess.Popen(
                [folder / "program"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=error
            )

    def close(self) -> None:
        self._process.communicate()

    def own(self, x, matrix: "Matrix"):
        return self._ask(x, matrix, self._form(matrix).tile(len(x))[0])

    def of_mlx(self, x, matrix: "Matrix"):
        return self._ask(x, matrix, 0)

    def _form(self, matrix: "Matrix") -> MatrixForm:
        return MatrixForm(*matrix.codes.shape, self.bits, self.group_size)

    def _ask(self, x, matrix: "Matrix", tile: int):
        form = self._form(matrix)
        outs, cols = form.outs, form.cols
        wide = (
            form.values == MatrixForm(8, 4096, self.bits, self.group_size).values and outs % 8 == 0
        )
        sizes = np.array([len(x), cols, outs, wide, tile], np.int32)
        arrays = [sizes, self.stored(x), matrix.packed(self.bits)]
        arrays += [self.stored(matrix.scales), self.stored(matrix.biases)]
        self._process.stdin.write(b"".join(array.tobytes() for array in arrays))
        self._process.stdin.flush()
        width = 4 if self.number == "float" else 2
        found = self._process.stdout.read(len(x) * outs * width)
        assert len(found) == len(x) * outs * width, self.error.read_text()
        return self.read(found).reshape(len(x), outs)

    def stored(self, numbers):
        """Numbers of the kernel's type, of which these are some."""
        if self.number == "bfloat":
            return (np.ascontiguousarray(numbers, np.float32).view(np.uint32) >> 16).astype(
                np.uint16
            )
        return numbers.astype(np.float16 if self.number == "half" else np.float32)

    def read(self, stored: bytes):
        if self.number == "bfloat":
            return (np.frombuffer(stored, np.uint16).astype(np.uint32) << 16).view(np.float32)
        kind = np.float16 if self.number == "half" else np.float32
        return np.frombuffer(stored, kind).astype(np.float32)

    def drawn(self, generator, *shape: int):
        """Random numbers that the type holds, of such different sizes that the order of sums matters."""
        exponents = generator.integers(-10, 3, shape)
        numbers = np.ldexp(generator.standard_normal(shape), exponents).astype(np.float32)
        return self.read(self.stored(numbers).tobytes()).reshape(shape)


class Matrix:
    """Random weights [outs, cols] of a form."""

    def __init__(self, kernel: KernelOnCPU, generator, outs: int, cols: int) -> None:
        groups = cols // kernel.group_size
        self.codes = generator.integers(0, 2**kernel.bits, (outs, cols), np.uint8)
        self.scales = kernel.drawn(generator, outs, groups)
        self.biases = kernel.drawn(generator, outs, groups)

    def packed(self, bits: int):
        each = np.unpackbits(self.codes[..., None], axis=-1, bitorder="little")[..., :bits]
        return np.packbits(each.reshape(len(self.codes), -1), axis=-1, bitorder="little")

    def parts(self):
        """Scaled codes and biases of each weight, float64."""
        size = self.codes.shape[1] // self.scales.shape[1]
        wide = [np.repeat(a, size, axis=1).astype(np.float64) for a in (self.scales, self.biases)]
        return wide[0] * self.codes, wide[1]
