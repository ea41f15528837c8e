"""Public names and their modules, for type checkers and for the package itself."""

from dace_redist._version import __version__ as __version__
from dace_redist.balancing import balanced_by as balanced_by
from dace_redist.box_distribution import BoxDistribution as BoxDistribution
from dace_redist.distribution import Distribution as Distribution
from dace_redist.distribution import TiledDistribution as TiledDistribution
from dace_redist.errors import BuildError as BuildError
from dace_redist.errors import RedistributionError as RedistributionError
from dace_redist.redistribution.plan import Plan as Plan
from dace_redist.redistribution.planning import plan as plan
from dace_redist.redistribution.redistribute import redistribute as redistribute
from dace_redist.redistribution.request import Request as Request
from dace_redist.redistribution.shared_memory import node_shared_memory as node_shared_memory
from dace_redist.redistribution.shared_memory import shared_empty as shared_empty
from dace_redist.redistribution.whole import gather as gather
from dace_redist.redistribution.whole import scatter as scatter
from dace_redist.relabelling import node_weights as node_weights
from dace_redist.relabelling import relabel as relabel
from dace_redist.schedule import Schedule as Schedule
from dace_redist.schedule import schedule as schedule
from dace_redist.transformations import set_strategy as set_strategy
from dace_redist.transformations.distribute import distribute as distribute
from dace_redist.transformations.distribute.runtime.program import DistributedProgram as DistributedProgram
from dace_redist.transformations.hook import hook as hook
from dace_redist.transformations.optimize import optimize as optimize
from dace_redist.transformations.tune import tune as tune
from dace_redist.tuning.auto import chosen_strategy as chosen_strategy
