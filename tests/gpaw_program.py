"""Program that computes a molecule's energy by GPAW, whose matrices ScaLAPACK redistributes and diagonalises."""

from ase.build import molecule
from gpaw import GPAW
from gpaw.mpi import world

atoms = molecule("H2O", vacuum=2.5)
options = {"mode": "lcao", "basis": "dzp", "h": 0.25, "txt": None, "convergence": {"density": 1e-3}}
atoms.calc = GPAW(**options, parallel={"sl_default": (2, world.size // 2, 8)})
energy, levels = atoms.get_potential_energy(), atoms.calc.get_eigenvalues()
if world.rank == 0:
    print(f"sum {energy!r} {levels.tolist()!r}")
