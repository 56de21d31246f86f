"""Values of Go test tables, read from small texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from simsched_policies.production.go_values import Call, Composite, GoFile, Name, read_go

from simsched.errors import InputError

KNOWN = {"corev1.ResourceCPU": "cpu", "time.Second": 1}


def values_of(body: str, before: str = "") -> dict[str, object]:
    """Return the variables of a test function with a body."""
    return GoFile(f"package x\n{before}\nfunc TestX(t *testing.T) {{\n{body}\n}}\n", KNOWN).values("TestX")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"a\\"b" + `c\\d`', 'a"bc\\d'),
        ("2*time.Second + 1_000", 1002),
        ("-0x10", -16),
        ("1.5e1", 15.0),
        ("1 << 3", 8),
        ("int32(7)", 7),
        ("ptr.To[int32](7)", 7),
        ("new(true)", True),
        ("&x.Y{A: nil}", Composite("x.Y", {"A": None})),
        ("[]int{1, 2}", (1, 2)),
        ('map[string][]T{"a": {{1}, {2}}}', {"a": (Composite("T", {}, (1,)), Composite("T", {}, (2,)))}),
        ('map[Key]int{{A: "x"}: 3}', {Composite("Key", {"A": "x"}): 3}),
        ("corev1.ResourceList{corev1.ResourceCPU: 4}", Composite("corev1.ResourceList", {"cpu": 4})),
        ("corev1.ResourceMemory", Name("corev1.ResourceMemory")),
        ("5 * other.Unit", Call("*", None, (5, Name("other.Unit")))),
        ('fmt.Sprintf("n-%d", 3)', "n-3"),
        ("append([]int{1}, 2, 3)", (1, 2, 3)),
        ("append([]int{1}, []int{2, 3}...)", (1, 2, 3)),
        ("append([]int{1, 2, 3}[:1], []int{1, 2, 3}[2:]...)", (1, 3)),
        ("slices.Concat([]int{1}, nil, slices.Clone([]int{2, 3})[0:1])", (1, 2)),
        ("any(T{N: 3}.N)", Call("any", None, (3,))),
        ('[]string{\n\t"a", // first\n\t/* second */ "b",\n}[1]', "b"),
    ],
)
def test_expressions(text: str, value: object) -> None:
    """An expression is the value that Go gives it; what is not known stays a name or a call."""
    assert values_of(f"v := {text}") == {"v": value}


def test_a_builder_is_a_chain_of_calls() -> None:
    """The chain lists the calls of a builder from its first, over several lines."""
    chain = values_of('w := *b.MakeX("a", "ns").\n\tCount(2).\n\tObj()')["w"]
    assert isinstance(chain, Call)
    assert [(call.name, call.args) for call in chain.chain()] == [("MakeX", ("a", "ns")), ("Count", (2,)), ("Obj", ())]
    assert chain.chain()[0].receiver == Name("b")


def test_variables_and_constants_stand_for_their_values() -> None:
    """Names of the file and of the function are replaced, fields of structs are not, keys of maps are."""
    found = values_of(
        'const (\n\track = "r"\n)\nvar nodes = []Node{{Name: name}}\n'
        "cases := map[string]struct{\n\tnodes []Node\n\tby map[string]int\n}{\n"
        '\t"one": {nodes: nodes, by: map[string]int{rack: 1}},\n}',
        'const name = "n"',
    )
    one = Composite("struct", {"nodes": (Composite("Node", {"Name": "n"}),), "by": {"r": 1}})
    assert found["cases"] == {"one": one}


def test_helpers_are_expanded_unless_they_branch() -> None:
    """A helper with plain statements gives its value for the arguments; one with a condition stays a call."""
    helpers = (
        'func pair(a, b string) []string {\n\tc := a + "!"\n\treturn []string{c, b}\n}\n'
        "func either(a int) int {\n\tif a > 1 {\n\t\treturn 2\n\t}\n\treturn 3\n}"
    )
    local = 'make := func(n int) T { return T{N: n} }\n x, y, z := pair("a", "b"), either(4), make(5)'
    found = values_of(local, helpers)
    assert found["x"] == ("a!", "b")
    assert found["y"] == Call("either", None, (4,))
    assert found["z"] == Composite("T", {"N": 5})


def test_a_field_that_is_set_later_is_a_call() -> None:
    """An assignment to a field is kept on the value."""
    assert values_of("w := T{}\nw.Spec.Count = 3")["w"] == Call("Spec.Count=", Composite("T", {}), (3,))


def test_loops_are_passed_over_but_their_table_is_kept() -> None:
    """A table that is written into a loop is found by the loop's variable, what follows is read."""
    found = values_of(
        'for _, tc := range []struct{ a int }{{a: 1}, {2}} {\n\tt.Run("x", func() { b := 1 })\n}\nlast := 4'
    )
    assert found == {"tc": (Composite("struct", {"a": 1}), Composite("struct", {}, (2,))), "last": 4}


def test_simple_loops_are_run() -> None:
    """A loop over a number or a list is run, with fields of a struct whose literal leaves their names out."""
    found = values_of(
        "type rack struct { name, row string }\nvar nodes []string\nracks := []rack{{`r1`, `a`}, {`r2`, `b`}}\n"
        "for _, r := range racks {\n"
        "\tfor i := range 2 {\n\t\tnodes = append(nodes, fmt.Sprintf(`%s%d`, r.name, i))\n\t}\n}\n"
        "for i := 1; i < 3; i++ {\n\tnodes = append(nodes, fmt.Sprintf(`n%d`, i))\n}"
    )
    assert found["nodes"] == ("r10", "r11", "r20", "r21", "n1", "n2")


def test_what_is_returned() -> None:
    """A function of a file gives what it returns."""
    assert GoFile("package x\nfunc table() []T {\n\treturn []T{{A: 1}}\n}\n", {}).values("table")["return"] == (
        Composite("T", {"A": 1}),
    )


def test_files_that_are_no_go(tmp_path: Path) -> None:
    """A text whose brackets stay open and a function that is not there are told."""
    broken = tmp_path / "a.go"
    broken.write_text("package x\nfunc TestX(t *testing.T) {\n\ta := []int{1,", encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.go.*cannot be read as Go"):
        read_go(broken)
    with pytest.raises(InputError, match="function TestY"):
        GoFile("package x\n", {}).values("TestY")
    with pytest.raises(InputError, match="calls itself"):
        values_of("v := again(1)", "func again(n int) int {\n\treturn again(n)\n}")
