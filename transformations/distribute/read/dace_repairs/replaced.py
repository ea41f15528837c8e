"""
DaCe's functions that stand-ins of this package replace while a program is parsed, or for the hook.

Importing a stand-in raises ``ImportError`` if DaCe lacks the function, or has another one. A test fails with a version
of DaCe that has one repaired: its stand-in can then go.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import dace
from dace import dtypes
from dace.frontend.python import astutils, newast
from dace.frontend.python.nested_call import NestedCall
from dace.frontend.python.newast import ProgramVisitor
from dace.frontend.python.parser import DaceProgram
from dace.frontend.python.replacements import array_creation, operators, ufunc
from dace.sdfg import propagation
from dace.sdfg import utils as sdutil


class Replaced(NamedTuple):
    """
    Function of DaCe that has a stand-in.

    :param of: Its class or module.
    :param digest: See :func:`digest_of`.
    :param fault: What DaCe does, and the stand-in does not.
    :param repaired_in: Version of DaCe that makes the stand-in unnecessary; None: none yet.
    """

    of: Any
    name: str
    digest: str
    fault: str
    repaired_in: str | None = None


_TEXT, _TYPE = "prints no floor divisions of sizes, and quotients as integers", "has the type for sizes of 1"

#: All of them.
REPLACED = (
    Replaced(
        sdutil,
        "distributed_compile",
        "65db48d8",
        "calls no hook; replaced if the configuration names that of this package",
    ),
    Replaced(DaceProgram, "closure_resolver", "7cff3fe5", "takes the globals of the decoration, or of an earlier call"),
    Replaced(DaceProgram, "_generate_pdp", "bf32ea8d", "takes the globals of the decoration, or of an earlier call"),
    Replaced(NestedCall, "add_state", "9d6fa2d8", "adds states to the program even if the call is in a loop"),
    Replaced(ProgramVisitor, "create_callback", "a4255dc8", "calls unknown functions in Python"),
    Replaced(ProgramVisitor, "parse_program", "e167d464", "writes new values of arguments to the arrays of the caller"),
    Replaced(ProgramVisitor, "visit_Assign", "8b84ccaa", "knows neither nested tuples of targets nor lists"),
    Replaced(ProgramVisitor, "visit_Attribute", "659ef6b9", "gives the array for attributes that it does not know"),
    Replaced(ProgramVisitor, "visit_Call", "1f251dd5", "does not tell numbers of Python from scalars"),
    Replaced(ProgramVisitor, "visit_For", "96d99c11", "forgets that variables of loops are symbols after the loop"),
    Replaced(ProgramVisitor, "visit_If", "0e592824", "reads all elements that a condition names, also behind `and`"),
    Replaced(ProgramVisitor, "visit_NamedExpr", "23bdca0e", "returns no value"),
    Replaced(
        ProgramVisitor, "visit_Return", "0ca9e4d4", "accepts a return in a branch or loop, which cannot be distributed"
    ),
    Replaced(ProgramVisitor, "visit_While", "faf59956", "reads all elements that a condition names, also behind `and`"),
    Replaced(
        ProgramVisitor,
        "_add_assignment",
        "543c4b46",
        "converts to the type of the first value; reads no expressions of sizes",
    ),
    Replaced(
        ProgramVisitor, "_add_aug_assignment", "670da068", "has the types of C++ in A += B, and misreads a broadcast B"
    ),
    Replaced(
        ProgramVisitor, "_add_read_slice", "18061e94", "drops all axes of one element, even those that NumPy keeps"
    ),
    Replaced(
        ProgramVisitor,
        "_visit_assign",
        "eeb7ff58",
        "makes one array of b = a; assigns a, b = b, a in turn; writes others for a[1:][0]",
    ),
    Replaced(ProgramVisitor, "_visit_op", "812f137e", "does not tell numbers of Python from scalars"),
    Replaced(
        ProgramVisitor,
        "_visit_test",
        "6f666b24",
        "keeps the names of variables in conditions, not those of their arrays; SymPy takes these for integers",
    ),
    Replaced(
        newast,
        "_subset_is_local_symbol_dependent",
        "0fce8c44",
        "takes loops with indices that depend on others for maps",
    ),
    Replaced(propagation, "propagate_memlet", "6930ab1c", "takes longer than all else in the reading of a program"),
    Replaced(
        dtypes.pointer,
        "to_string",
        "f42385d3",
        "fails, as for a masked assignment to an array that nothing reads afterwards",
    ),
    Replaced(astutils, "unparse", "424ade74", _TEXT),
    *(Replaced(module, "sym_type", "57cc22ac", _TYPE) for module in (newast, operators, ufunc, array_creation)),
)

#: Stand-in and original, by class or module, and name.
PATCHES: dict[tuple[Any, str], tuple[Any, Any]] = {}


def dace_attribute(kind: Any, name: str) -> Any:
    """Return an attribute of one of DaCe's classes or modules, if this version of DaCe has it."""
    if not hasattr(kind, name):
        raise _other_dace(f"has no {name!r}", kind)
    return getattr(kind, name)


def _other_dace(what: str, kind: Any) -> ImportError:
    return ImportError(
        f"dace_redist.distribute cannot read programs with DaCe {dace.__version__}, whose {kind.__name__} {what}: "
        "install dace==2.0.0b1, or pass an SDFG instead of a @dace.program"
    )


def digest_of(function: Any) -> str:
    """Return a digest of the source of a function; empty if there is none."""
    try:
        source = inspect.getsource(function)
    except OSError:
        return ""
    return hashlib.blake2b(source.encode(), digest_size=4).hexdigest()


def replace_by(stand_in: Any, *replaced: tuple[Any, str]) -> None:
    """Enter a stand-in for functions."""
    for kind, name in replaced:
        original = dace_attribute(kind, name)
        (known,) = (one.digest for one in REPLACED if (one.of, one.name) == (kind, name))
        if digest_of(original) not in ("", known):
            raise _other_dace(f"has another {name!r} than the one that is replaced", kind)
        PATCHES[kind, name] = stand_in, original


def in_place_of(kind: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function as a stand-in; its first argument is the original."""
    original = dace_attribute(kind, name)

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        replace_by(lambda *arguments, **options: function(original, *arguments, **options), (kind, name))
        return function

    return enter
