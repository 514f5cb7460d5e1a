//! Integer instructions against models in wide integers.

mod common;

use common::table::Reg::{B16, B32, B64, Pred};
use common::table::{Case, Reg, Table, case, random_rows, special_rows};
use proptest::prelude::*;

/// An integer type of PTX.
#[derive(Clone, Copy)]
struct Int {
    name: &'static str,
    bits: u32,
    signed: bool,
}

const INTS: [Int; 6] = [
    Int { name: "u16", bits: 16, signed: false },
    Int { name: "s16", bits: 16, signed: true },
    Int { name: "u32", bits: 32, signed: false },
    Int { name: "s32", bits: 32, signed: true },
    Int { name: "u64", bits: 64, signed: false },
    Int { name: "s64", bits: 64, signed: true },
];

impl Int {
    fn reg(self) -> Reg {
        match self.bits {
            16 => B16,
            32 => B32,
            _ => B64,
        }
    }

    fn wide_reg(self) -> Reg {
        if self.bits == 16 { B32 } else { B64 }
    }

    /// The number that a pattern stands for.
    fn read(self, bits: u64) -> i128 {
        let shift = 64 - self.bits;
        if self.signed {
            i128::from((bits << shift) as i64 >> shift)
        } else {
            i128::from(bits << shift >> shift)
        }
    }

    fn least(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn most(self) -> i128 {
        (1 << (self.bits - u32::from(self.signed))) - 1
    }

    fn clamp(self, value: i128) -> u64 {
        value.clamp(self.least(), self.most()) as u64
    }
}

fn arithmetic() -> Vec<Case> {
    let mut cases = Vec::new();
    for int in INTS {
        let (t, r) = (int.name, int.reg());
        let mut binary = |op: &str, model: fn(Int, i128, i128) -> i128| {
            cases.push(case(&format!("{op}.{t} %d, %a, %b"), r, &[r, r], move |v| {
                model(int, int.read(v[0]), int.read(v[1])) as u64
            }));
        };
        binary("add", |_, a, b| a + b);
        binary("sub", |_, a, b| a - b);
        binary("mul.lo", |_, a, b| a.wrapping_mul(b));
        binary("mul.hi", |int, a, b| {
            // The product of two u64 needs all 128 bits.
            if int.signed {
                (a * b) >> int.bits
            } else {
                ((a as u128 * b as u128) >> int.bits) as i128
            }
        });
        binary("div", |int, a, b| if b == 0 { -1 } else { int.read((a / b) as u64) });
        binary("rem", |_, a, b| if b == 0 { a } else { a % b });
        binary("min", |_, a, b| a.min(b));
        binary("max", |_, a, b| a.max(b));
        cases.push(case(&format!("mad.lo.{t} %d, %a, %b, %c"), r, &[r, r, r], move |v| {
            v[0].wrapping_mul(v[1]).wrapping_add(v[2])
        }));
        cases.push(case(&format!("mad.hi.{t} %d, %a, %b, %c"), r, &[r, r, r], move |v| {
            let (a, b) = (int.read(v[0]), int.read(v[1]));
            let high = if int.signed {
                (a * b) >> int.bits
            } else {
                ((a as u128 * b as u128) >> int.bits) as i128
            };
            (high as u64).wrapping_add(v[2])
        }));
        cases.push(case(&format!("sad.{t} %d, %a, %b, %c"), r, &[r, r, r], move |v| {
            ((int.read(v[0]) - int.read(v[1])).unsigned_abs() as u64).wrapping_add(v[2])
        }));
        if int.bits < 64 {
            let w = int.wide_reg();
            cases.push(case(&format!("mul.wide.{t} %d, %a, %b"), w, &[r, r], move |v| {
                (int.read(v[0]) * int.read(v[1])) as u64
            }));
            cases.push(case(&format!("mad.wide.{t} %d, %a, %b, %c"), w, &[r, r, w], move |v| {
                ((int.read(v[0]) * int.read(v[1])) as u64).wrapping_add(v[2])
            }));
        }
        cases.push(case(&format!("shr.{t} %d, %a, %b"), r, &[r, B32], move |v| {
            (int.read(v[0]) >> v[1].min(127)) as u64
        }));
        for (cmp, model) in [
            ("eq", (|a, b| a == b) as fn(i128, i128) -> bool),
            ("ne", |a, b| a != b),
            ("lt", |a, b| a < b),
            ("le", |a, b| a <= b),
            ("gt", |a, b| a > b),
            ("ge", |a, b| a >= b),
        ] {
            cases.push(case(&format!("setp.{cmp}.{t} %d, %a, %b"), Pred, &[r, r], move |v| {
                model(int.read(v[0]), int.read(v[1])).into()
            }));
            if int.bits > 16 {
                cases.push(case(
                    &format!("set.{cmp}.u32.{t} %d, %a, %b"),
                    B32,
                    &[r, r],
                    move |v| {
                        if model(int.read(v[0]), int.read(v[1])) { u64::MAX } else { 0 }
                    },
                ));
            }
        }
        for imm in [0u64, 1, 5, 31, 40] {
            cases.push(case(&format!("shr.{t} %d, %a, {imm}"), r, &[r], move |v| {
                (int.read(v[0]) >> imm) as u64
            }));
        }
        for imm in [1i64, 3, 7, 10] {
            cases.push(case(&format!("div.{t} %d, %a, {imm}"), r, &[r], move |v| {
                (int.read(v[0]) / i128::from(imm)) as u64
            }));
            cases.push(case(&format!("rem.{t} %d, %a, {imm}"), r, &[r], move |v| {
                (int.read(v[0]) % i128::from(imm)) as u64
            }));
        }
    }
    for (bits, r) in [(16u32, B16), (32, B32), (64, B64)] {
        cases.push(case(&format!("shl.b{bits} %d, %a, %b"), r, &[r, B32], move |v| {
            if v[1] >= u64::from(bits) { 0 } else { v[0] << v[1] }
        }));
        cases.push(case(&format!("not.b{bits} %d, %a"), r, &[r], |v| !v[0]));
        cases.push(case(&format!("cnot.b{bits} %d, %a"), r, &[r], |v| (v[0] == 0).into()));
        cases.push(case(&format!("and.b{bits} %d, %a, %b"), r, &[r, r], |v| v[0] & v[1]));
        cases.push(case(&format!("or.b{bits} %d, %a, %b"), r, &[r, r], |v| v[0] | v[1]));
        cases.push(case(&format!("xor.b{bits} %d, %a, %b"), r, &[r, r], |v| v[0] ^ v[1]));
        let s = Int { name: "", bits, signed: true };
        cases.push(case(&format!("neg.s{bits} %d, %a"), r, &[r], |v| v[0].wrapping_neg()));
        cases.push(case(&format!("abs.s{bits} %d, %a"), r, &[r], move |v| {
            s.read(v[0]).unsigned_abs() as u64
        }));
        cases.push(case(&format!("selp.b{bits} %d, %a, %b, %c"), r, &[r, r, Pred], |v| {
            if v[2] != 0 { v[0] } else { v[1] }
        }));
        cases.push(case(&format!("slct.u{bits}.s32 %d, %a, %b, %c"), r, &[r, r, B32], |v| {
            if v[2] as i32 >= 0 { v[0] } else { v[1] }
        }));
    }
    for op in ["and", "or", "xor"] {
        cases.push(case(
            &format!("{op}.pred %d, %a, %b"),
            Pred,
            &[Pred, Pred],
            move |v| match op {
                "and" => v[0] & v[1],
                "or" => v[0] | v[1],
                _ => v[0] ^ v[1],
            },
        ));
        cases.push(case(
            &format!("setp.lt.{op}.s32 %d, %a, %b, !%c"),
            Pred,
            &[B32, B32, Pred],
            move |v| {
                let (less, c) = (u64::from((v[0] as i32) < v[1] as i32), v[2] ^ 1);
                match op {
                    "and" => less & c,
                    "or" => less | c,
                    _ => less ^ c,
                }
            },
        ));
    }
    cases.push(case("not.pred %d, %a", Pred, &[Pred], |v| v[0] ^ 1));
    let s32 = INTS[3];
    cases.push(case("add.sat.s32 %d, %a, %b", B32, &[B32, B32], move |v| {
        s32.clamp(s32.read(v[0]) + s32.read(v[1]))
    }));
    cases.push(case("sub.sat.s32 %d, %a, %b", B32, &[B32, B32], move |v| {
        s32.clamp(s32.read(v[0]) - s32.read(v[1]))
    }));
    cases.push(case("mad.hi.sat.s32 %d, %a, %b, %c", B32, &[B32, B32, B32], move |v| {
        s32.clamp(((s32.read(v[0]) * s32.read(v[1])) >> 32) + s32.read(v[2]))
    }));
    for (name, signed) in [("u32", false), ("s32", true)] {
        let low24 = move |v: u64| {
            let v = v as u32;
            if signed { i64::from((v << 8) as i32 >> 8) } else { i64::from(v & 0xff_ffff) }
        };
        cases.push(case(&format!("mul24.lo.{name} %d, %a, %b"), B32, &[B32, B32], move |v| {
            (low24(v[0]) * low24(v[1])) as u64
        }));
        cases.push(case(&format!("mul24.hi.{name} %d, %a, %b"), B32, &[B32, B32], move |v| {
            ((low24(v[0]) * low24(v[1])) as u64) >> 16
        }));
        cases.push(case(&format!("mad24.lo.{name} %d, %a, %b, %c"), B32, &[B32; 3], move |v| {
            ((low24(v[0]) * low24(v[1])) as u64).wrapping_add(v[2])
        }));
    }
    cases
}

fn bits() -> Vec<Case> {
    let mut cases = Vec::new();
    for (bits, r) in [(32u32, B32), (64, B64)] {
        let int = move |signed| Int { name: "", bits, signed };
        cases.push(case(&format!("popc.b{bits} %d, %a"), B32, &[r], |v| v[0].count_ones().into()));
        cases.push(case(&format!("clz.b{bits} %d, %a"), B32, &[r], move |v| {
            u64::from(v[0].leading_zeros() - (64 - bits))
        }));
        cases.push(case(&format!("brev.b{bits} %d, %a"), r, &[r], move |v| {
            v[0].reverse_bits() >> (64 - bits)
        }));
        for signed in [false, true] {
            let t = if signed { "s" } else { "u" };
            cases.push(case(&format!("bfind.{t}{bits} %d, %a"), B32, &[r], move |v| {
                let n = int(signed).read(v[0]);
                let n = if n < 0 { !n } else { n };
                if n == 0 { u64::MAX } else { (127 - n.leading_zeros()).into() }
            }));
            let field = move |v: u64, pos: u64, len: u64| {
                let n = int(signed).read(v);
                // The 64-bit forms take all of the operands, as hardware does.
                let part = |operand: u64| if bits == 32 { operand & 255 } else { operand.min(255) };
                let (pos, len) = (part(pos) as u32, part(len) as u32);
                if len == 0 {
                    return 0;
                }
                // The sign of a field that reaches past the end is the sign of the value.
                let shifted = n >> pos.min(127);
                if len >= bits {
                    return shifted as u64;
                }
                let sign_at = (pos + len - 1).min(bits - 1);
                let mask = (1i128 << len) - 1;
                let negative = signed && n >> sign_at & 1 != 0;
                (if negative { shifted & mask | !mask } else { shifted & mask }) as u64
            };
            cases.push(case(
                &format!("bfe.{t}{bits} %d, %a, %b, %c"),
                r,
                &[r, B32, B32],
                move |v| field(v[0], v[1], v[2]),
            ));
            for (pos, len) in [(0, 8), (8, 8), (31, 1), (4, 0), (20, 20), (0, 32)] {
                cases.push(case(
                    &format!("bfe.{t}{bits} %d, %a, {pos}, {len}"),
                    r,
                    &[r],
                    move |v| field(v[0], pos, len),
                ));
            }
        }
        cases.push(case(&format!("bfi.b{bits} %d, %a, %b, %c, 9"), r, &[r, r, B32], move |v| {
            let (pos, all) = (if bits == 32 { v[2] & 255 } else { v[2] } as u32, r.mask());
            if pos >= bits {
                v[1]
            } else {
                v[1] & !((0x1ff << pos) & all) | (v[0] & 0x1ff) << pos & all
            }
        }));
    }
    for lut in [0x00u8, 0x96, 0xe8, 0xca, 0x80, 0xfe, 0x1e, 0x78, 0x2d, 0xff, 0x53, 0xb1, 0x40] {
        cases.push(case(&format!("lop3.b32 %d, %a, %b, %c, {lut}"), B32, &[B32; 3], move |v| {
            (0..32).fold(0, |sum, i| {
                let index = (v[0] >> i & 1) << 2 | (v[1] >> i & 1) << 1 | v[2] >> i & 1;
                sum | u64::from(lut >> index & 1) << i
            })
        }));
    }
    for (mode, wrap) in [("wrap", true), ("clamp", false)] {
        let amount = move |c: u64| if wrap { c & 31 } else { c.min(32) } as u32;
        cases.push(case(&format!("shf.l.{mode}.b32 %d, %a, %b, %c"), B32, &[B32; 3], move |v| {
            ((u128::from(v[1]) << 32 | u128::from(v[0])) << amount(v[2]) >> 32) as u64
        }));
        cases.push(case(&format!("shf.r.{mode}.b32 %d, %a, %b, %c"), B32, &[B32; 3], move |v| {
            (v[1] << 32 | v[0]) >> amount(v[2])
        }));
    }
    let prmt = |a: u64, b: u64, selector: u64| {
        let bytes = (b << 32 | a).to_le_bytes();
        (0..4).fold(0u64, |sum, i| {
            let s = selector >> (4 * i) & 15;
            let byte = bytes[(s & 7) as usize];
            let byte = if s & 8 != 0 { if byte & 0x80 != 0 { 0xff } else { 0 } } else { byte };
            sum | u64::from(byte) << (8 * i)
        })
    };
    cases.push(case("prmt.b32 %d, %a, %b, %c", B32, &[B32; 3], move |v| prmt(v[0], v[1], v[2])));
    for selector in [0x3210u64, 0x7654, 0x0123, 0x5410, 0x7632, 0xb3a2, 0x4440] {
        cases.push(case(&format!("prmt.b32 %d, %a, %b, {selector}"), B32, &[B32, B32], move |v| {
            prmt(v[0], v[1], selector)
        }));
    }
    for (at, bt) in [("u32", "u32"), ("s32", "s32"), ("u32", "s32"), ("s32", "u32")] {
        let read = |t: &str, byte: u64, bits: u32| {
            let up = 64 - bits;
            if t == "s32" { (byte << up) as i64 >> up } else { (byte << up >> up) as i64 }
        };
        cases.push(case(&format!("dp4a.{at}.{bt} %d, %a, %b, %c"), B32, &[B32; 3], move |v| {
            (0..4).fold(v[2] as i64, |sum, i| {
                sum + read(at, v[0] >> (8 * i), 8) * read(bt, v[1] >> (8 * i), 8)
            }) as u64
        }));
        for (half, shift) in [("lo", 0), ("hi", 16)] {
            cases.push(case(
                &format!("dp2a.{half}.{at}.{bt} %d, %a, %b, %c"),
                B32,
                &[B32; 3],
                move |v| {
                    (0..2).fold(v[2] as i64, |sum, i| {
                        sum + read(at, v[0] >> (16 * i), 16) * read(bt, v[1] >> (shift + 8 * i), 8)
                    }) as u64
                },
            ));
        }
    }
    // 128-bit sum of (b:a) and (a:c) through the carry flag, upper half.
    cases.push(case(
        "{ .reg .b64 %lo; add.cc.u64 %lo, %a, %c; addc.u64 %d, %b, %a; }",
        B64,
        &[B64; 3],
        |v| {
            ((u128::from(v[1]) << 64 | u128::from(v[0]))
                .wrapping_add(u128::from(v[0]) << 64 | u128::from(v[2]))
                >> 64) as u64
        },
    ));
    cases.push(case(
        "{ .reg .b32 %lo; sub.cc.u32 %lo, %a, %c; subc.u32 %d, %b, %a; }",
        B32,
        &[B32; 3],
        |v| (v[1] << 32 | v[0]).wrapping_sub(v[0] << 32 | v[2]) >> 32,
    ));
    cases.push(case(
        "{ .reg .b32 %lo; mad.lo.cc.u32 %lo, %a, %b, %c; madc.hi.u32 %d, %a, %b, 0; }",
        B32,
        &[B32; 3],
        |v| (v[0] * v[1]).wrapping_add(v[2]) >> 32,
    ));
    // The flag of a subtraction, read by an addition, says that nothing was borrowed; compilers
    // rely on it.
    cases.push(case(
        "{ .reg .b32 %lo; sub.cc.u32 %lo, %a, %b; addc.u32 %d, %c, 0; }",
        B32,
        &[B32; 3],
        |v| v[2].wrapping_add((v[0] >= v[1]).into()),
    ));
    cases.push(case(
        "{ .reg .b64 %lo, %hi; sub.cc.u64 %lo, %a, %c; subc.cc.u64 %hi, %b, %a; addc.u64 %d, 0, 0; }",
        B64,
        &[B64; 3],
        |v| ((u128::from(v[1]) << 64 | u128::from(v[0])) >= (u128::from(v[0]) << 64 | u128::from(v[2]))).into(),
    ));
    cases.push(case("mov.b64 %d, {%a, %b}", B64, &[B32, B32], |v| v[1] << 32 | v[0]));
    cases.push(case("{ .reg .b32 %lo; mov.b64 {%lo, %d}, %a; }", B32, &[B64], |v| v[0] >> 32));
    cases.push(case("{ .reg .b16 %h; mov.b32 {%d, %h}, %a; }", B16, &[B32], |v| v[0]));
    cases
}

fn conversions() -> Vec<Case> {
    let types =
        [("u8", 8, false), ("s8", 8, true)].map(|(name, bits, signed)| Int { name, bits, signed });
    let mut cases = Vec::new();
    for from in types.iter().chain(&INTS).copied() {
        for to in types.iter().chain(&INTS).copied() {
            let (src, dst) = (
                Int { bits: from.bits.max(16), ..from }.reg(),
                Int { bits: to.bits.max(16), ..to }.reg(),
            );
            cases.push(case(
                &format!("cvt.{}.{} %d, %a", to.name, from.name),
                dst,
                &[src],
                move |v| to.read(from.read(v[0]) as u64) as u64,
            ));
            cases.push(case(
                &format!("cvt.sat.{}.{} %d, %a", to.name, from.name),
                dst,
                &[src],
                move |v| to.clamp(from.read(v[0])),
            ));
        }
    }
    cases
}

#[test]
fn arithmetic_on_special_values() {
    let table = Table::new(arithmetic());
    table.check(&special_rows());
    table.check(&random_rows(2000, 0x1234_5678));
}

#[test]
fn bit_manipulation_on_special_values() {
    let table = Table::new(bits());
    table.check(&special_rows());
    table.check(&random_rows(2000, 0x9e37_79b9));
}

#[test]
fn conversions_on_special_values() {
    Table::new(conversions()).check(&special_rows());
}

#[test]
fn arithmetic_on_any_values() {
    let table = Table::new(arithmetic().into_iter().chain(bits()).collect());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(8));
    let rows = proptest::collection::vec(any::<[u64; 3]>(), 1..200);
    runner
        .run(&rows, |rows| {
            table.check(&rows);
            Ok(())
        })
        .expect("all agree");
}
