"""When are two masks the same? Conditions over tensor lanes in a canonical form.

A mask is a conjunction of *atoms*. An atom is a comparison or any other boolean, written as a function of
the lane's coordinates: ``(rows < M)[:, None]`` and ``rows[:, None] < M`` are one atom, and so are
``i + 1 <= n`` and ``i < n``. Integer arithmetic is kept as polynomials, so that ``i < n - 1`` is known to
imply ``i < n``; anything else is compared by structure. Overflow is ignored, as the kernel's author did.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from matrix.code.lanes import Condition, Labels, order, positions, reshaped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.code.mlir import Operation, Value

Term = int
Atoms = frozenset[Term]
Polynomial = dict[tuple[Term, ...], int]

_MAX_MONOMIALS = 24
_LITERAL = re.compile(r"arith\.constant (?:dense<)?([^>\s:]+)")
_OPERAND = re.compile(r"%[\w.$-]+(?:#\d+)?")
_SAME_INTEGER = {"arith.extsi", "arith.extui", "arith.index_cast"}
_ARITHMETIC = {"arith.addi", "arith.subi", "arith.muli"}
# Equal operands give an equal result, and nothing else does anything to it.
_PURE = (
    "arith.",
    "math.",
    "tt.make_range",
    "tt.bitcast",
    "tt.get_program_id",
    "tt.get_num_programs",
    "tt.mulhiui",
)
_LESS = {"slt": (-1, 1), "sle": (0, 1), "sgt": (-1, -1), "sge": (0, -1)}
_EXTREME = {True: "arith.minsi", False: "arith.maxsi"}
_OPPOSITE = {"slt": "sge", "sge": "slt", "sle": "sgt", "sgt": "sle"}
_OPPOSITE |= {"ult": "uge", "uge": "ult", "ule": "ugt", "ugt": "ule", "eq": "ne", "ne": "eq"}


class Predicates:
    """Canonical terms of one function. ``loops`` tells, for a value, the loops that define it anew."""

    def __init__(self, loops: dict[Value, frozenset[int]], carried: set[Value]) -> None:
        self._loops = loops
        self._carried = carried
        self._ids: dict[object, Term] = {}
        self._nodes: list[object] = []
        self._positions: list[frozenset[int]] = []
        self._values: list[frozenset[Value]] = []
        self._past: list[bool] = []
        self._terms: dict[Condition, Term] = {}
        self._conjuncts: dict[Condition, Atoms] = {}

    def atoms(self, condition: Condition) -> Atoms:
        """The atoms that all hold where the condition does; none where it always holds."""
        if condition not in self._conjuncts:
            self._conjuncts[condition] = self._atoms(condition)
        return self._conjuncts[condition]

    def remaining(self, atoms: Iterable[Term], given: Atoms) -> Atoms:
        """The atoms that ``given`` does not imply."""
        return frozenset(atom for atom in atoms if atom not in given and not self._implied(atom, given))

    def between(self, low: Value, value: Value, high: Value) -> Atoms:
        """``low <= value < high`` of scalars."""
        terms = [self._term(Condition(scalar, ())) for scalar in (low, value, high)]
        return self._comparison("sle", *terms[:2]) | self._comparison("slt", *terms[1:])

    def depends_on(self, atom: Term, position: int) -> bool:
        return position in self._positions[atom]

    def varies(self, atom: Term, like: Term) -> bool:
        """Whether the atom is over the same lanes as ``like``, of a past iteration, and changes in a loop."""
        return (
            self._past[like]
            and self._positions[atom] == self._positions[like]
            and not self._values[atom].isdisjoint(self._carried)
        )

    def slope(self, atom: Term, position: int) -> int:
        """The sign with which ``position`` enters ``atom`` read as ``polynomial >= 0``; 0 when it mixes."""
        node = self._nodes[atom]
        if not (isinstance(node, tuple) and node[0] == "at least 0"):
            return 0
        signs = set()
        for monomial, factor in self._polynomial_of(node[2]).items():
            if any(position in self._positions[part] for part in monomial):
                plain = len(monomial) == 1 and self._nodes[monomial[0]] == ("range", position)
                signs.add((factor > 0) - (factor < 0) if plain else 0)
        return signs.pop() if len(signs) == 1 else 0

    def _implied(self, atom: Term, given: Atoms) -> bool:
        node = self._nodes[atom]
        if not isinstance(node, tuple):
            return False
        if node[0] == "either":
            return any(not self.remaining(alternative, given) for alternative in node[1:])
        return node[0] == "at least 0" and self._follows(self._polynomial_of(node[2]), node[1], given)

    def _follows(self, wanted: Polynomial, kind: object, given: Atoms) -> bool:
        """Whether ``wanted >= 0`` is one of ``given``, or one and a bound of a scalar, plus a constant."""
        known = [
            (atom, self._polynomial_of(node[2]))
            for atom in given
            if isinstance(node := self._nodes[atom], tuple) and node[:2] == ("at least 0", kind)
        ]
        scalars = [{}, *(polynomial for atom, polynomial in known if not self._positions[atom])]
        gaps = (_added(_added(wanted, one, -1), other, -1) for _, one in known for other in scalars)
        return any(set(gap) <= {()} and gap.get((), 0) >= 0 for gap in gaps)

    def _atoms(self, condition: Condition) -> Atoms:
        inner = self._through(condition)
        if inner is not None:
            return self.atoms(inner)
        name = condition.value.definition.name if condition.value.definition else ""
        match name:
            case "arith.constant":
                always = (_literal(_defined(condition)) == "true") != condition.negated
                return frozenset() if always else frozenset({self._node(("never",))})
            case "arith.andi" | "arith.ori":
                return self._combined(condition, conjunction=name == "arith.andi")
            case "arith.xori" if (other := self._not_of(condition)) is not None:
                return self.atoms(other)
            case "arith.cmpi":
                return self._compared(condition)
            case _:
                return frozenset({self._node(("not" if condition.negated else "is", self._term(condition)))})

    def _combined(self, condition: Condition, *, conjunction: bool) -> Atoms:
        operation = _defined(condition)
        sides = [
            self.atoms(Condition(operand, condition.labels, condition.negated, condition.epoch))
            for operand in operation.operands
        ]
        if conjunction != condition.negated:
            return frozenset().union(*sides)
        if not all(sides):  # one of them always holds
            return frozenset()
        return frozenset({self._node(("either", *sorted(sides, key=sorted)))})

    def _not_of(self, condition: Condition) -> Condition | None:
        """The operand of ``x xor true``, as a condition that is the opposite."""
        left, right = _defined(condition).operands
        for value, other in ((left, right), (right, left)):
            if _is_true(other):
                return Condition(value, condition.labels, not condition.negated, condition.epoch)
        return None

    def _compared(self, condition: Condition) -> Atoms:
        operation = _defined(condition)
        relation = operation.text.split()[1].rstrip(",")
        if condition.negated:
            relation = _OPPOSITE[relation]
        left, right = (self._term(condition.of(operand)) for operand in operation.operands)
        return self._comparison(relation, left, right)

    def _comparison(self, relation: str, left: Term, right: Term) -> Atoms:
        kind = "signed"
        if relation.startswith("u"):
            kind, relation = "unsigned", "s" + relation[1:]
        difference = _added(self._polynomial_of(right), self._polynomial_of(left), -1)
        if relation in _LESS:
            offset, sign = _LESS[relation]
            return self._at_least_zero(kind, _added({(): offset}, difference, sign))
        opposite = {monomial: -factor for monomial, factor in difference.items()}
        either = sorted([self._polynomial_term(difference), self._polynomial_term(opposite)])
        return frozenset({self._node((relation, *either))})

    def _at_least_zero(self, kind: str, slack: Polynomial) -> Atoms:
        """``slack >= 0``, taken apart where it holds a minimum of two: then it must hold for both."""
        for monomial, factor in slack.items():
            node = self._nodes[monomial[0]] if len(monomial) == 1 else None
            if isinstance(node, tuple) and node[0] == "op" and node[1].startswith(_EXTREME[factor > 0]):
                rest = {other: value for other, value in slack.items() if other != monomial}
                sides = [_added(rest, self._polynomial_of(part), factor) for part in node[2:]]
                return frozenset().union(*(self._at_least_zero(kind, side) for side in sides))
        return frozenset({self._node(("at least 0", kind, self._polynomial_term(slack)))})

    def _through(self, condition: Condition) -> Condition | None:
        """The same condition, of the operand, for an operation that only moves lanes."""
        operation, labels = condition.value.definition, condition.labels
        if operation is None or not operation.operands:
            return None
        source = operation.operands[0]
        match operation.name:
            case "tt.splat":
                labels = ()
            case "tt.broadcast":
                labels = tuple(x if size != 1 else None for x, size in zip(labels, source.shape, strict=True))
            case "tt.expand_dims":
                axis = operation.integer("axis")
                labels = labels[:axis] + labels[axis + 1 :]
            case "tt.trans":
                labels = tuple(labels[order(operation).index(i)] for i in range(len(labels)))
            case "tt.reshape":
                labels = reshaped(source.shape, condition.value.shape, labels)
            case _:
                return None
        return Condition(source, labels, condition.negated, condition.epoch)

    def _term(self, condition: Condition) -> Term:
        condition = condition.of(condition.value)
        if condition not in self._terms:
            self._terms[condition] = self._new_term(condition)
        return self._terms[condition]

    def _new_term(self, condition: Condition) -> Term:
        operation = condition.value.definition
        inner = self._through(condition)
        if inner is not None:
            return self._term(inner)
        if operation is None or not operation.name.startswith(_PURE):
            return self._opaque(condition)
        if not operation.operands:
            return self._leaf(operation, condition.labels)
        operands = [self._term(condition.of(operand)) for operand in operation.operands]
        if operation.name in _ARITHMETIC:
            return self._arithmetic(operation.name, *operands)
        if operation.name in _SAME_INTEGER and not _is_boolean(operation.operands[0]):
            return operands[0]
        return self._node(("op", _OPERAND.sub("", operation.text.partition(" : ")[0]), *operands))

    def _leaf(self, operation: Operation, labels: Labels) -> Term:
        """A term without operands: a range, a constant, or a scalar such as the program's number."""
        if operation.name == "tt.make_range":
            start = operation.integer("start")
            (label,) = labels
            position: Polynomial = {} if label is None else {(self._node(("range", label)),): 1}
            return self._polynomial_term({**position, (): start})
        if operation.name == "arith.constant":
            literal = _literal(operation)
            if re.fullmatch(r"-?\d+", literal):
                return self._polynomial_term({(): int(literal)})
        return self._node(("=", operation.text.partition(" : ")[0]))

    def _arithmetic(self, name: str, left: Term, right: Term) -> Term:
        one, other = self._polynomial_of(left), self._polynomial_of(right)
        if name == "arith.muli":
            result = _multiplied(one, other)
        else:
            result = _added(one, other, -1 if name == "arith.subi" else 1)
        if len(result) > _MAX_MONOMIALS:
            return self._node(("op", name, left, right))
        return self._polynomial_term(result)

    def _polynomial_of(self, term: object) -> Polynomial:
        assert isinstance(term, int)
        node = self._nodes[term]
        if isinstance(node, frozenset):
            return dict(node)
        return {(term,): 1}

    def _polynomial_term(self, polynomial: Polynomial) -> Term:
        terms = frozenset((monomial, factor) for monomial, factor in polynomial.items() if factor)
        if len(terms) == 1:
            ((monomial, factor),) = terms
            if factor == 1 and len(monomial) == 1:
                return monomial[0]
        return self._node(terms)

    def _opaque(self, condition: Condition) -> Term:
        value = condition.value
        past = condition.epoch & self._loops.get(value, frozenset())
        return self._node(("value", value, condition.labels, past))

    def _node(self, node: object) -> Term:
        if node not in self._ids:
            self._ids[node] = len(self._nodes)
            self._nodes.append(node)
            self._describe(node)
        return self._ids[node]

    def _describe(self, node: object) -> None:
        """Notes which positions and which opaque values a new node depends on."""
        found: set[int] = set()
        values: set[Value] = set()
        past = False
        if isinstance(node, tuple) and node[0] == "range":
            found |= positions(node[1])
        elif isinstance(node, tuple) and node[0] == "value":
            found = set().union(*map(positions, node[2]))
            values, past = {node[1]}, bool(node[3])
        for child in _children(node):
            found |= self._positions[child]
            values |= self._values[child]
            past |= self._past[child]
        self._positions.append(frozenset(found))
        self._values.append(frozenset(values))
        self._past.append(past)


def _children(node: object) -> list[Term]:
    if isinstance(node, frozenset):
        return [term for monomial, _ in node for term in monomial]
    assert isinstance(node, tuple)
    if node[0] in {"range", "value", "never", "="}:
        return []
    parts = [part for part in node[1:] if not isinstance(part, str)]
    return [term for part in parts for term in (part if isinstance(part, frozenset) else (part,))]


def _added(one: Polynomial, other: Polynomial, factor: int) -> Polynomial:
    result = dict(one)
    for monomial, value in other.items():
        result[monomial] = result.get(monomial, 0) + factor * value
    return {monomial: value for monomial, value in result.items() if value}


def _multiplied(one: Polynomial, other: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for left, a in one.items():
        for right, b in other.items():
            monomial = tuple(sorted(left + right))
            result[monomial] = result.get(monomial, 0) + a * b
    return {monomial: value for monomial, value in result.items() if value}


def _defined(condition: Condition) -> Operation:
    assert condition.value.definition is not None
    return condition.value.definition


def _literal(operation: Operation) -> str:
    match = _LITERAL.match(operation.text)
    return match[1] if match and not match[1].startswith("[") else operation.text


def _is_true(value: Value) -> bool:
    operation = value.definition
    return operation is not None and operation.name == "arith.constant" and _literal(operation) == "true"


def _is_boolean(value: Value) -> bool:
    return value.type.endswith(("i1", "xi1>"))
