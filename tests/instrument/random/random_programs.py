"""Random programs for compiled checks: what they do depends on nothing but the memory that they are handed.

A program is a tree. Every node of it knows simpler things that may stand in its place, so that reduce_program.py can make
a program that fails smaller without understanding C.

The programs have no undefined behaviour: integers are computed without signs, every index is known to be within its
array, and floating-point numbers are means of numbers, which stay finite. So each must leave the same memory however it
was compiled.
"""
import random

# A program gets these arrays of numbers (struct data), by name: type, elements.
ARRAYS = {
    "d": ("double", 256),
    "f": ("float", 256),
    "l": ("long", 256),
    "q": ("unsigned long", 128),
    "u": ("unsigned", 256),
    "i": ("int", 256),
    "s": ("short", 512),
    "h": ("unsigned short", 256),
    "b": ("unsigned char", 1024),
    "c": ("signed char", 256),
}
FLOATING = ("double", "float")
PACKS, NODES, ROWS, COLUMNS, INDICES = 32, 64, 16, 24, 256
FIELDS = {"c": "signed char", "s": "short", "i": "int", "d": "double", "bits": "unsigned", "more": "unsigned", "f": "float"}
NAME_BYTES = 20  # struct pack's name

# An innermost statement is executed at most this often in one call of its function.
MOST_TIMES = 6000
MOST_DEPTH = 4

PRELUDE = """\
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct pack { signed char c; short s; int i; double d; unsigned bits : 5, more : 11; float f; char name[20]; };
struct node { struct node* next; long value; short weight; char tag[6]; };
struct data {
%s
  struct pack p[32];
  struct node n[64];
  double* rows[16];
  double m[16][24];
  unsigned index[256];
};
struct kernel { const char* name; void (*run)(unsigned char*); };

static inline __attribute__((always_inline)) double mean_of(double sum) { return sum > 1e6 || sum < -1e6 ? 3.25 : sum; }

/* Turns the bytes that a program is handed into numbers and pointers. Some numbers look as invalid lines do. */
static void begin(struct data* data) {
  for (int i = 0; i < 256; ++i) {
    data->d[i] = (double)(data->l[i] & 0xfff) * 0.125 - 100;
    data->f[i] = (float)(data->u[i] & 0xfff) * 0.5f - 50;
    if ((data->u[i] & 31) == 3) data->u[i] = 0xfffdfffdu;
    if ((data->l[i] & 31) == 5) data->l[i] = (long)0xfffdfffdfffdfffdul;
    data->index[i] &= 255;
  }
  for (int i = 0; i < 32; ++i) {
    data->p[i].d = (double)i * 0.75;
    data->p[i].f = (float)i * 1.5f;
  }
  for (int i = 0; i < 64; ++i) data->n[i].next = i + 3 < 64 ? &data->n[i + 1 + (data->n[i].value & 1)] : 0;
  for (int i = 0; i < 16; ++i) {
    data->rows[i] = data->m[i];
    for (int j = 0; j < 24; ++j) data->m[i][j] = i - 0.5 * j;
  }
}
/* Pointers become numbers, which do not depend on where the memory is. */
static void end(struct data* data) {
  for (int i = 0; i < 64; ++i)
    data->n[i].next = (struct node*)(uintptr_t)(data->n[i].next == 0 ? 0 : data->n[i].next - data->n + 1);
  for (int i = 0; i < 16; ++i) data->rows[i] = (double*)(uintptr_t)(data->rows[i] - data->m[0]);
}
""" % "\n".join(f"  {kind} {name}[{count}];" for name, (kind, count) in ARRAYS.items())  # noqa: UP031 (C is full of braces)


class Node:
    """A piece of text made of pieces, and what may stand in its place: text, or nodes."""

    def __init__(self, *parts, simpler=()):
        self.parts = list(parts)
        self.simpler = list(simpler)

    def __str__(self):
        return "".join(str(part) for part in self.parts)

    def nodes(self):
        """Itself and all nodes below, those nearer to the root first, with how to put something in their place."""
        for place, part in enumerate(self.parts):
            if isinstance(part, Node):
                yield self, place, part
        for part in self.parts:
            if isinstance(part, Node):
                yield from part.nodes()


class Variable:
    """An integer variable whose values are known to lie in [low, high]."""

    def __init__(self, name, low, high):
        self.name, self.low, self.high = name, low, high


class Scope:
    """What an expression may use: variables, pointers (name: type, elements), and accumulators."""

    def __init__(self, variables=(), pointers=None, sums=(), chain=None, in_loop=False):
        self.variables, self.pointers, self.sums = list(variables), dict(pointers or {}), list(sums)
        self.chain = chain
        self.in_loop = in_loop

    def having(self, variable=None, chain=None, total=None, in_loop=None):
        return Scope(self.variables + ([variable] if variable else []), self.pointers,
                     self.sums + ([total] if total else []), chain or self.chain,
                     self.in_loop if in_loop is None else in_loop)


class Program:
    """The program of a number, as a tree: `functions`, the root, prints it."""

    def __init__(self, seed):
        self.seed = seed
        self.name = f"p{seed}"
        self.random = random.Random(seed)
        # The compiler does not know these numbers of the program.
        self.numbers = [self.random.choice([0, 1, 2, 3, 5, 8, 13, 17, 24, 40, 64, 100]) for _ in range(6)]
        self.names = 0
        self.functions = []
        self.tree = self.make()

    def __str__(self):
        return str(self.tree)

    # --- Numbers -------------------------------------------------------------------------------------------------------

    def chance(self, probability):
        return self.random.random() < probability

    def fresh(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    def number(self, most):
        """Text of a number that the compiler does not know, with its value, which is not above `most`."""
        fitting = [i for i, value in enumerate(self.numbers) if value <= most]
        if not fitting:
            return "0", 0
        i = self.random.choice(fitting)
        return f"{self.name}_number[{i}]", self.numbers[i]

    def index(self, scope, count):
        """An expression that is in [0, count)."""
        variables = [v for v in scope.variables if v.low >= 0]
        r = self.random.random()
        if not variables or r < 0.08:
            return str(self.random.randrange(count))
        v = self.random.choice(variables)
        if r < 0.45 and v.high < count:
            offset = self.random.randrange(min(count - v.high, 9))
            return f"{v.name} + {offset}" if offset else v.name
        if r < 0.60:
            factor = self.random.choice([2, 3, 4, 7])
            if v.high * factor < count:
                other = self.random.choice(variables)
                if other is not v and v.high * factor + other.high < count:
                    return f"{v.name} * {factor} + {other.name}"
                return f"{v.name} * {factor}"
        if r < 0.75 and v.high < count:
            return f"{count - 1} - {v.name}"
        if r < 0.87:
            return f"data->index[(unsigned){v.name} % {INDICES}] % {count}"
        return f"((unsigned long){v.name} * {self.random.choice([1, 3, 5, 9, 33])} + {self.random.randrange(40)}) % {count}"

    def place(self, scope, floating=None):
        """Something that can be loaded from and stored to: its text, and its type."""
        r = self.random.random()
        if floating is not False and r < 0.12:
            return f"data->rows[{self.index(scope, ROWS)}][{self.index(scope, COLUMNS)}]", "double"
        if floating is not False and r < 0.2:
            return f"data->m[{self.index(scope, ROWS)}][{self.index(scope, COLUMNS)}]", "double"
        if r < 0.32:
            name = self.random.choice([n for n, kind in FIELDS.items()
                                       if floating is None or (kind in FLOATING) == floating])
            return f"data->p[{self.index(scope, PACKS)}].{name}", FIELDS[name]
        if floating is not True and r < 0.37:
            return f"data->p[{self.index(scope, PACKS)}].name[{self.index(scope, NAME_BYTES)}]", "char"
        if floating is not True and scope.chain and r < 0.5:
            return f"{scope.chain}->{self.random.choice(['value', 'weight', 'tag[2]'])}", "long"
        pointers = {n: k for n, k in scope.pointers.items() if floating is None or (k[0] in FLOATING) == floating}
        arrays = {f"data->{n}": k for n, k in ARRAYS.items() if floating is None or (k[0] in FLOATING) == floating}
        choice = pointers if pointers and self.chance(0.5) else arrays
        name = self.random.choice(sorted(choice))
        kind, count = choice[name]
        return f"{name}[{self.index(scope, count)}]", kind

    def integer(self, scope, depth=0):
        """An expression of unsigned long."""
        r = self.random.random()
        if depth > 2 or r < 0.45:
            place, _ = self.place(scope, floating=False)
            return Node(f"(unsigned long){place}", simpler=["1ul"])
        if r < 0.55 and scope.variables:
            return Node(f"(unsigned long){self.random.choice(scope.variables).name}", simpler=["2ul"])
        if r < 0.63:
            return Node(self.random.choice(["3ul", "0x7ful", "0xfffdfffdul", "1000003ul", "0ul", f"{self.number(1000)[0]}"]),
                        simpler=["1ul"])
        left, right = self.integer(scope, depth + 1), self.integer(scope, depth + 1)
        if r < 0.9:
            operator = self.random.choice(["+", "-", "*", "^", "&", "|", "+", "^"])
            return Node("(", left, f" {operator} ", right, ")", simpler=["1ul", left, right])
        if r < 0.95:
            shift = self.random.choice([">>", "<<"])
            return Node("(", left, f" {shift} (", right, " & 31))", simpler=["1ul", left])
        return Node("(", self.condition(scope, depth + 1), " ? ", left, " : ", right, ")", simpler=["1ul", left, right])

    def floating(self, scope, depth=0):
        """An expression of double that is not beyond the numbers that it is made of."""
        r = self.random.random()
        if depth > 2 or r < 0.45:
            place, _ = self.place(scope, floating=True)
            return Node(place, simpler=["0.5"])
        if r < 0.52:
            return Node("(double)((", self.integer(scope, depth + 1), ") & 1023)", simpler=["0.5"])
        if r < 0.58:
            return Node(self.random.choice(["0.5", "1.25", "-3.0", "0.0"]))
        left, right = self.floating(scope, depth + 1), self.floating(scope, depth + 1)
        if r < 0.92:
            operator = self.random.choice(["+", "-"])
            return Node("(", left, f" {operator} ", right, ") * 0.5", simpler=["0.5", left, right])
        return Node("(", self.condition(scope, depth + 1), " ? ", left, " : ", right, ")", simpler=["0.5", left, right])

    def condition(self, scope, depth=0):
        r = self.random.random()
        if r < 0.25:
            operator = self.random.choice(["<", ">", "<="])
            return Node("(", self.floating(scope, depth + 1), f" {operator} ", self.floating(scope, depth + 1), ")",
                        simpler=["1", "0"])
        mask, value = self.random.choice([(1, 0), (3, 1), (7, 0), (7, 5), (15, 3)])
        return Node("((", self.integer(scope, depth + 1), f" & {mask}) == {value})", simpler=["1", "0"])

    # --- Statements ----------------------------------------------------------------------------------------------------

    def statement(self, *parts, keep=()):
        return Node(*parts, simpler=["", *keep])

    def assignment(self, scope):
        r = self.random.random()
        if r < 0.08 and scope.sums:
            total = self.random.choice(scope.sums)
            if total.startswith("sum"):
                return self.statement(f"{total} += ", self.floating(scope), ";\n")
            return self.statement(f"{total} {self.random.choice(['+', '^'])}= ", self.integer(scope), ";\n")
        place, kind = self.place(scope)
        if kind in FLOATING:
            if self.chance(0.3):
                return self.statement(f"{place} = ({place} + ", self.floating(scope), ") * 0.5;\n")
            return self.statement(f"{place} = ({kind})", self.floating(scope), ";\n")
        return self.statement(f"{place} {self.random.choice(['=', '+=', '^=', '=', '-=', '|='])} ", self.integer(scope), ";\n")

    def copy(self, scope):
        """memcpy and its like: of bytes, of parts of an array, of whole structures, of a value of another type."""
        r = self.random.random()
        if r < 0.2:
            return self.statement(f"data->p[{self.index(scope, PACKS)}] = data->p[{self.index(scope, PACKS)}];\n")
        if r < 0.3:
            local = self.fresh("pack")
            return self.statement(f"{{ struct pack {local} = data->p[{self.index(scope, PACKS)}]; {local}.i ^= 5; "
                                  f"{local}.name[3] += 2; data->p[{self.index(scope, PACKS)}] = {local}; }}\n")
        if r < 0.42:
            local = self.fresh("value")
            to, frm = self.index(scope, ARRAYS["b"][1] - 8), self.index(scope, ARRAYS["b"][1] - 8)
            size = self.random.choice([2, 3, 4, 6, 8])
            return self.statement(f"{{ unsigned long {local} = 0; memcpy(&{local}, &data->b[{frm}], {size}); {local} += ",
                                  self.integer(scope, 2), f"; memcpy(&data->b[{to}], &{local}, {size}); }}\n")
        name = self.random.choice(["b", "b", "s", "l", "d", "f", "m", "i"])
        if name == "m":
            kind, count, array = "double", COLUMNS, f"data->m[{self.index(scope, ROWS)}]"
            other = f"data->m[{self.index(scope, ROWS)}]"
        else:
            kind, count = ARRAYS[name]
            array = other = f"data->{name}"
        size = {"double": 8, "float": 4, "long": 8, "short": 2, "int": 4, "unsigned char": 1}[kind]
        most = min(count - 1, 320 // size)
        length = self.random.randrange(1, most + 1)
        text = str(length)
        if self.chance(0.25):
            text, length = self.number(most)
        elif self.chance(0.15) and scope.variables:
            length = min(most, 63)
            text = f"(unsigned long){self.random.choice(scope.variables).name} % {length + 1}"
        to, frm = self.index(scope, count - length), self.index(scope, count - length)
        if r < 0.52:
            # This goes by way of private memory.
            local = self.fresh("copy")
            return self.statement(f"{{ {kind} {local}[{most}]; memcpy({local}, &{other}[{frm}], {size} * ({text})); "
                                  f"memcpy(&{array}[{to}], {local}, {size} * ({text})); }}\n")
        if r < 0.68 and kind not in FLOATING:
            byte = self.random.choice(["0", "0xfd", "(int)((", None])
            value = Node("(int)((", self.integer(scope, 2), ") & 255)", simpler=["1"]) if byte in (None, "(int)((") else byte
            return self.statement(f"memset(&{array}[{to}], ", value, f", {size} * ({text}));\n")
        return self.statement(f"memmove(&{array}[{to}], &{other}[{frm}], {size} * ({text}));\n")

    def atomic(self, scope):
        r = self.random.random()
        index = self.index(scope, 256)
        if r < 0.4:
            return self.statement(f"__atomic_fetch_add(&data->{self.random.choice(['l', 'i', 'u'])}[{index}], (int)(",
                                  self.integer(scope, 2), " & 255), __ATOMIC_SEQ_CST);\n")
        if r < 0.6:
            return self.statement(f"__atomic_store_n(&data->{self.random.choice(['l', 's', 'b'])}[{index}], (int)(",
                                  self.integer(scope, 2), " & 127), __ATOMIC_RELEASE);\n")
        if r < 0.8:
            old = self.fresh("old")
            return self.statement(f"{{ unsigned {old} = data->u[{index}]; __atomic_compare_exchange_n(&data->u[{index}], &{old}, "
                                  f"{old} + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED); }}\n")
        return self.statement(f"*(volatile int*)&data->i[{index}] ^= (int)(", self.integer(scope, 2), " & 63);\n")

    def pointers(self, scope):
        r = self.random.random()
        one, other = self.index(scope, ROWS), self.index(scope, ROWS)
        if r < 0.5:
            row = self.fresh("row")
            return self.statement(f"{{ double* {row} = data->rows[{one}]; data->rows[{one}] = data->rows[{other}]; "
                                  f"data->rows[{other}] = {row}; }}\n")
        node = self.fresh("node")
        return self.statement(f"{{ struct node* {node} = &data->n[{self.index(scope, NODES)}]; if ({node}->next) "
                              f"{node}->next = {node}->next->next; }}\n")

    def walk(self, scope, depth, times):
        node = self.fresh("at")
        inner = scope.having(chain=node, in_loop=True)
        body = self.block(inner, depth + 1, times * 40)
        leave = f"if (({node}->weight & 63) == {self.random.randrange(64)}) break;\n" if self.chance(0.3) else ""
        return self.statement(f"for (struct node* {node} = &data->n[{self.index(scope, NODES)}]; {node}; {node} = {node}->next) {{\n",
                              body, leave, "}\n", keep=[Node(f"{{ struct node* {node} = &data->n[0];\n", body, "}\n")])

    def shifts(self, scope):
        bits, count = self.fresh("bits"), self.fresh("count")
        place, _ = self.place(scope, floating=False)
        return self.statement(f"{{ unsigned {bits} = (unsigned)", self.integer(scope, 1), f" & 0xffff; long {count} = 0; "
                              f"while ({bits}) {{ {count} += {bits} & 1; {bits} >>= 1; }} {place} += {count}; }}\n")

    def branch(self, scope, depth, times):
        then = self.block(scope, depth + 1, times)
        if self.chance(0.35):
            otherwise = self.block(scope, depth + 1, times)
            return self.statement("if ", self.condition(scope), " {\n", then, "} else {\n", otherwise, "}\n",
                                  keep=[then, otherwise])
        if self.chance(0.15):
            cases = [self.block(scope, depth + 1, times) for _ in range(3)]
            return self.statement("switch (", self.integer(scope, 1), " & 3) {\ncase 0: {\n", cases[0],
                                  "break; }\ncase 2: {\n", cases[1], "break; }\ndefault: {\n", cases[2], "} }\n")
        return self.statement("if ", self.condition(scope), " {\n", then, "}\n", keep=[then])

    def loop(self, scope, depth, times):
        name = self.fresh("i")
        kind = self.random.choice(["int", "long", "long", "unsigned", "unsigned long"])
        most = max(1, min(MOST_TIMES // times, 256))
        sign = 0
        # The end is known to the compiler, or not, or is a variable of a loop outside.
        r = self.random.random()
        outer = [v for v in scope.variables if v.low >= 0 and v.high < most]
        if r < 0.35 or most < 3:
            count = self.random.choice([c for c in (1, 2, 3, 4, 7, 8, 9, 16, 17, 24, 33, 64, 100, 256) if c <= most])
            end, high = str(count), count
        elif r < 0.75:
            end, high = self.number(most)
        elif r < 0.87 and outer:
            v = self.random.choice(outer)
            end, high = f"({kind}){v.name} + 1", v.high + 1
        else:
            mask = self.random.choice([m for m in (3, 7, 15, 31, 63) if m <= most] or [1])
            end, high = f"({kind})(data->q[{self.index(scope, 128)}] & {mask})", mask
        step, shape = "1", self.random.random()
        if shape < 0.5:
            head = f"for ({kind} {name} = 0; {name} < {end}; ++{name})"
        elif shape < 0.65:
            head = f"for ({kind} {name} = {end}; {name} > 0; --{name})"
            sign = 1
        elif shape < 0.8:
            step = self.random.choice(["2", "3", "7", f"({kind}){self.name}_number[5] + 1"])
            head = f"for ({kind} {name} = {self.random.randrange(2)}; {name} < {end}; {name} += {step})"
        elif shape < 0.9:
            head = f"for ({kind} {name} = 0, {name}end = {end}; {name} != {name}end; {name}++)"
        else:
            begin = self.random.randrange(1, 4)
            head = f"for ({kind} {name} = {begin}; {name} < {end}; {name}++)"
        variable = Variable(name, sign, max(high - 1 + sign, 0))
        inner = scope.having(variable, in_loop=True)
        before = after = ""
        if self.chance(0.2):
            if self.chance(0.5):
                total = self.fresh("sum")
                place, _ = self.place(scope, floating=True)
                before, after = f"{{ double {total} = 0;\n", f"{place} = mean_of({total}); }}\n"
            else:
                total = self.fresh("total")
                place, _ = self.place(scope, floating=False)
                before, after = f"{{ unsigned long {total} = 0;\n", f"{place} ^= {total}; }}\n"
            inner = inner.having(total=total)
        body = self.block(inner, depth + 1, times * max(high, 1))
        leave = ""
        if self.chance(0.12):
            leave = self.statement("if ", self.condition(inner), f" {self.random.choice(['break', 'continue'])};\n")
        first = self.random.choice([leave, ""])
        last = leave if first == "" else ""
        return self.statement(before, f"{head} {{\n", first, body, last, "}\n", after,
                              keep=[Node(before, f"{{ {kind} {name} = {sign};\n", body, "}\n", after)])

    def call(self, scope):
        """A call of a function that is there already, with memory of which it does not know where it is."""
        function = self.random.choice(self.functions)
        arguments, private = [], []
        for kind, count in function["pointers"]:
            names = [n for n, k in ARRAYS.items() if k[0] == kind and k[1] >= count]
            given = [n for n, k in scope.pointers.items() if k == (kind, count)]
            r = self.random.random()
            if given and r < 0.3:
                arguments.append(self.random.choice(given))
            elif r < 0.75:
                name = self.random.choice(names)
                arguments.append(f"data->{name} + {self.random.randrange(ARRAYS[name][1] - count + 1)}")
            else:
                local = self.fresh("own")
                private.append(f"{kind} {local}[{count}]; for (int {local}i = 0; {local}i < {count}; ++{local}i) "
                               f"{local}[{local}i] = ({kind}){local}i;")
                arguments.append(local)
        text = f"{function['name']}({', '.join(['data', *arguments])});"
        return self.statement(f"{{ {' '.join(private)} {text} }}\n")

    def block(self, scope, depth, times):
        count = self.random.choice([1, 1, 2, 2, 3]) if depth else self.random.randrange(2, 6)
        return Node(*[self.one(scope, depth, times) for _ in range(count)])

    def one(self, scope, depth, times):
        r = self.random.random()
        if depth < MOST_DEPTH and times < MOST_TIMES // 2:
            if r < (0.6 if depth == 0 else 0.33):
                return self.loop(scope, depth, times)
            if r < (0.65 if depth == 0 else 0.41):
                return self.branch(scope, depth, times)
            if r < (0.69 if depth == 0 else 0.43) and times * 40 < MOST_TIMES:
                return self.walk(scope, depth, times)
        if r < 0.74:
            return self.assignment(scope)
        if r < 0.88:
            return self.copy(scope)
        if r < 0.91:
            return self.atomic(scope)
        if r < 0.94:
            return self.pointers(scope)
        if r < 0.96:
            return self.shifts(scope)
        if self.functions and times < 30:
            return self.call(scope)
        return self.assignment(scope)

    # --- Functions -----------------------------------------------------------------------------------------------------

    def function(self, number):
        pointers = []
        for _ in range(self.random.randrange(4)):
            kind = self.random.choice(["double", "long", "unsigned char", "short", "float", "unsigned"])
            pointers.append((kind, self.random.choice([24, 64, 100, 200])))
        name = f"{self.name}_f{number}"
        parameters = {f"a{i}": pointer for i, pointer in enumerate(pointers)}
        kind = self.random.choice(["static __attribute__((noinline))", "static", "static __attribute__((noinline))", ""])
        declared = ", ".join(["struct data* data"] + [f"{k} * {n}" for n, (k, _) in parameters.items()])
        body = self.block(Scope(pointers=parameters), 0, 1)
        # A function that other files may call is declared before it is defined.
        before = f"void {name}({declared});\n" if kind == "" else ""
        tree = Node(f"{before}{kind} void {name}({declared}) {{\n  (void)data;\n", body, "}\n")
        self.functions.append({"name": name, "pointers": pointers})
        return tree

    def make(self):
        numbers = ", ".join(str(n) for n in self.numbers)
        pieces = [f"static volatile long {self.name}_number[] = {{{numbers}}};\n"]
        for i in range(self.random.randrange(1, 4)):
            pieces.append(self.function(i))
        calls = [self.call(Scope()) for _ in range(self.random.randrange(2, 6))]
        pieces += [f"static void {self.name}(unsigned char* memory) {{\n  struct data* const data = (struct data*)memory;\n",
                   "  begin(data);\n", *calls, "  end(data);\n}\n"]
        return Node(*pieces)


def source_of(programs):
    """A file of C with these programs (objects with a name and a text)."""
    table = "".join(f'  {{"{program.name}", {program.name}}},\n' for program in programs)
    return (PRELUDE + "\n" + "\n".join(str(program) for program in programs) +
            f"\nextern const struct kernel c_kernels[];\nconst struct kernel c_kernels[] = {{\n{table}  {{0, 0}},\n}};\n")
