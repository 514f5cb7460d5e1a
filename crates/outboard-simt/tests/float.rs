//! Floating-point instructions and conversions against models in native arithmetic and, for other
//! roundings, exact wider arithmetic.

mod common;

use common::table::Reg::{B16, B32, B64, F32, F64, Pred};
use common::table::{Case, Reg, Table, case, random_rows, special_rows};
use half::{bf16, f16};

fn s(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn d(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn out_s(x: f32) -> u64 {
    x.to_bits().into()
}

/// Equal bits, or both NaN.
fn same_s(a: u64, b: u64) -> bool {
    a == b || s(a).is_nan() && s(b).is_nan()
}

fn same_d(a: u64, b: u64) -> bool {
    a == b || d(a).is_nan() && d(b).is_nan()
}

fn same_h(a: u64, b: u64) -> bool {
    a == b || f16::from_bits(a as u16).is_nan() && f16::from_bits(b as u16).is_nan()
}

fn same_b(a: u64, b: u64) -> bool {
    a == b || bf16::from_bits(a as u16).is_nan() && bf16::from_bits(b as u16).is_nan()
}

fn single(text: &str, srcs: &[Reg], model: impl Fn(&[f32]) -> f32 + 'static) -> Case {
    case(text, F32, srcs, move |v| out_s(model(&v.iter().map(|&v| s(v)).collect::<Vec<_>>())))
        .accept(same_s)
}

fn double(text: &str, srcs: &[Reg], model: impl Fn(&[f64]) -> f64 + 'static) -> Case {
    case(text, F64, srcs, move |v| model(&v.iter().map(|&v| d(v)).collect::<Vec<_>>()).to_bits())
        .accept(same_d)
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

fn saturate(x: f32) -> f32 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

/// The lesser operand: numbers beat NaN, -0 is less than +0.
fn least(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        _ => a.min(b),
    }
}

fn arithmetic() -> Vec<Case> {
    let two = &[F32, F32][..];
    let mut cases = vec![
        single("add.f32 %d, %a, %b", two, |v| v[0] + v[1]),
        single("sub.rn.f32 %d, %a, %b", two, |v| v[0] - v[1]),
        single("mul.f32 %d, %a, %b", two, |v| v[0] * v[1]),
        single("div.rn.f32 %d, %a, %b", two, |v| v[0] / v[1]),
        single("fma.rn.f32 %d, %a, %b, %c", &[F32; 3], |v| v[0].mul_add(v[1], v[2])),
        single("add.ftz.f32 %d, %a, %b", two, |v| flush(flush(v[0]) + flush(v[1]))),
        single("mul.ftz.f32 %d, %a, %b", two, |v| flush(flush(v[0]) * flush(v[1]))),
        single("add.sat.f32 %d, %a, %b", two, |v| saturate(v[0] + v[1])),
        single("fma.rn.sat.f32 %d, %a, %b, %c", &[F32; 3], |v| saturate(v[0].mul_add(v[1], v[2]))),
        single("min.f32 %d, %a, %b", two, |v| least(v[0], v[1])),
        single("max.f32 %d, %a, %b", two, |v| -least(-v[0], -v[1])),
        single("min.NaN.f32 %d, %a, %b", two, |v| {
            if v[0].is_nan() || v[1].is_nan() { f32::NAN } else { least(v[0], v[1]) }
        }),
        single("neg.f32 %d, %a", &[F32], |v| -v[0]),
        single("abs.f32 %d, %a", &[F32], |v| v[0].abs()),
        single("sqrt.rn.f32 %d, %a", &[F32], |v| v[0].sqrt()),
        single("rcp.rn.f32 %d, %a", &[F32], |v| 1.0 / v[0]),
        single("copysign.f32 %d, %a, %b", two, |v| v[1].copysign(v[0])),
        double("add.f64 %d, %a, %b", &[F64; 2], |v| v[0] + v[1]),
        double("sub.f64 %d, %a, %b", &[F64; 2], |v| v[0] - v[1]),
        double("mul.f64 %d, %a, %b", &[F64; 2], |v| v[0] * v[1]),
        double("div.rn.f64 %d, %a, %b", &[F64; 2], |v| v[0] / v[1]),
        double("fma.rn.f64 %d, %a, %b, %c", &[F64; 3], |v| v[0].mul_add(v[1], v[2])),
        double("sqrt.rn.f64 %d, %a", &[F64], |v| v[0].sqrt()),
        double("rcp.rn.f64 %d, %a", &[F64], |v| 1.0 / v[0]),
        double("abs.f64 %d, %a", &[F64], |v| v[0].abs()),
        case("selp.f32 %d, %a, %b, %c", F32, &[F32, F32, Pred], |v| {
            if v[2] != 0 { v[0] } else { v[1] }
        }),
        case("testp.finite.f32 %d, %a", Pred, &[F32], |v| s(v[0]).is_finite().into()),
        case("testp.infinite.f64 %d, %a", Pred, &[F64], |v| d(v[0]).is_infinite().into()),
        case("testp.notanumber.f32 %d, %a", Pred, &[F32], |v| s(v[0]).is_nan().into()),
        case("testp.normal.f32 %d, %a", Pred, &[F32], |v| {
            (s(v[0]).is_normal() || s(v[0]) == 0.0).into()
        }),
    ];
    type Compare = fn(f64, f64) -> bool;
    let compares: [(&str, Compare); 14] = [
        ("eq", |a, b| a == b),
        ("ne", |a, b| a.partial_cmp(&b).is_some_and(|o| o.is_ne())),
        ("lt", |a, b| a < b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("ge", |a, b| a >= b),
        ("equ", |a, b| a == b || a.is_nan() || b.is_nan()),
        ("neu", |a, b| a != b),
        ("ltu", |a, b| a.partial_cmp(&b).is_none_or(|o| o.is_lt())),
        ("leu", |a, b| a.partial_cmp(&b).is_none_or(|o| o.is_le())),
        ("gtu", |a, b| a.partial_cmp(&b).is_none_or(|o| o.is_gt())),
        ("geu", |a, b| a.partial_cmp(&b).is_none_or(|o| o.is_ge())),
        ("num", |a, b| a.partial_cmp(&b).is_some()),
        ("nan", |a, b| a.partial_cmp(&b).is_none()),
    ];
    for (name, model) in compares {
        cases.push(case(&format!("setp.{name}.f32 %d, %a, %b"), Pred, two, move |v| {
            model(s(v[0]).into(), s(v[1]).into()).into()
        }));
        cases.push(case(&format!("setp.{name}.f64 %d, %a, %b"), Pred, &[F64; 2], move |v| {
            model(d(v[0]), d(v[1])).into()
        }));
    }
    cases
}

/// `exact` rounded to `f32` in a direction; `exact` is not NaN.
fn round_single(exact: f64, mode: &str) -> f32 {
    let nearest = exact as f32;
    let (down, up) = match f64::from(nearest).total_cmp(&exact) {
        _ if f64::from(nearest) == exact => (nearest, nearest),
        std::cmp::Ordering::Less => (nearest, nearest.next_up()),
        _ => (nearest.next_down(), nearest),
    };
    match mode {
        "rm" => down,
        "rp" => up,
        _ if exact < 0.0 => up,
        _ => down,
    }
}

/// Directed rounding, where the exact result fits an `f64`.
fn directed() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in ["rz", "rm", "rp"] {
        cases.push(case(&format!("mul.{mode}.f32 %d, %a, %b"), F32, &[F32, F32], move |v| {
            out_s(round_single(f64::from(s(v[0])) * f64::from(s(v[1])), mode))
        }));
        cases.push(case(&format!("add.{mode}.f32 %d, %a, %b"), F32, &[F32, F32], move |v| {
            out_s(round_single(f64::from(s(v[0])) + f64::from(s(v[1])), mode))
        }));
        cases.push(case(&format!("cvt.{mode}.f32.f64 %d, %a"), F32, &[F64], move |v| {
            out_s(round_single(d(v[0]), mode))
        }));
        cases.push(case(&format!("cvt.{mode}.f32.s32 %d, %a"), F32, &[B32], move |v| {
            out_s(round_single(f64::from(v[0] as i32), mode))
        }));
        // a * b + c where the product is exact and the sum adds few digits.
        cases.push(case(
            &format!("fma.{mode}.f32 %d, %a, 0f3FC00000, %a"),
            F32,
            &[F32],
            move |v| out_s(round_single(f64::from(s(v[0])) * 2.5, mode)),
        ));
    }
    cases
}

fn conversions() -> Vec<Case> {
    let mut cases = vec![
        case("cvt.f64.f32 %d, %a", F64, &[F32], |v| f64::from(s(v[0])).to_bits()).accept(same_d),
        case("cvt.rn.f32.f64 %d, %a", F32, &[F64], |v| out_s(d(v[0]) as f32)).accept(same_s),
        case("cvt.sat.f32.f32 %d, %a", F32, &[F32], |v| out_s(saturate(s(v[0])))),
        case("cvt.rn.f16.f32 %d, %a", B16, &[F32], |v| f16::from_f32(s(v[0])).to_bits().into())
            .accept(same_h),
        case("cvt.rn.bf16.f32 %d, %a", B16, &[F32], |v| bf16::from_f32(s(v[0])).to_bits().into())
            .accept(same_b),
        case("cvt.f32.f16 %d, %a", F32, &[B16], |v| out_s(f16::from_bits(v[0] as u16).to_f32()))
            .accept(same_s),
        case("cvt.f32.bf16 %d, %a", F32, &[B16], |v| out_s(bf16::from_bits(v[0] as u16).to_f32()))
            .accept(same_s),
        case("cvt.f64.f16 %d, %a", F64, &[B16], |v| f16::from_bits(v[0] as u16).to_f64().to_bits())
            .accept(same_d),
        case("cvt.rn.f16x2.f32 %d, %a, %b", B32, &[F32, F32], |v| {
            u64::from(f16::from_f32(s(v[0])).to_bits()) << 16
                | u64::from(f16::from_f32(s(v[1])).to_bits())
        })
        .accept(|a, b| same_h(a & 0xffff, b & 0xffff) && same_h(a >> 16, b >> 16)),
        case("cvt.rna.tf32.f32 %d, %a", B32, &[F32], |v| {
            // Half of the last place kept, away from zero; NaN and infinity as they are.
            if s(v[0]).is_finite() { (v[0] + 0x1000) & !0x1fff } else { v[0] & !0x1fff }
        })
        .accept(|a, b| s(a).is_nan() && s(b).is_nan() || a == b || s(b).is_nan()),
    ];
    type Whole = fn(f64) -> f64;
    let roundings: [(&str, Whole); 4] = [
        ("rni", f64::round_ties_even),
        ("rzi", f64::trunc),
        ("rmi", f64::floor),
        ("rpi", f64::ceil),
    ];
    for (name, whole) in roundings {
        cases.push(
            case(&format!("cvt.{name}.f32.f32 %d, %a"), F32, &[F32], move |v| {
                out_s(whole(s(v[0]).into()) as f32)
            })
            .accept(same_s),
        );
        cases.push(
            case(&format!("cvt.{name}.f64.f64 %d, %a"), F64, &[F64], move |v| {
                whole(d(v[0])).to_bits()
            })
            .accept(same_d),
        );
        for (src, reg) in [("f32", F32), ("f64", F64)] {
            let read = move |bits: u64| if src == "f32" { f64::from(s(bits)) } else { d(bits) };
            // Not a number gives 0 from f32 to at most 32 bits, and the top bit alone otherwise, as
            // hardware has it.
            let mut int = |ty: &str, reg_out: Reg, convert: fn(f64) -> u64| {
                let nan = if src == "f32" && reg_out != B64 { 0 } else { reg_out.mask() / 2 + 1 };
                cases.push(case(
                    &format!("cvt.{name}.{ty}.{src} %d, %a"),
                    reg_out,
                    &[reg],
                    move |v| {
                        let x = whole(read(v[0]));
                        if x.is_nan() { nan } else { convert(x) }
                    },
                ));
            };
            int("s32", B32, |x| x as i32 as u64);
            int("u32", B32, |x| x as u32 as u64);
            int("s16", B16, |x| x as i16 as u64);
            int("u16", B16, |x| x as u16 as u64);
            int("s64", B64, |x| x as i64 as u64);
            int("u64", B64, |x| x as u64);
        }
    }
    cases.push(case("cvt.rn.f32.s32 %d, %a", F32, &[B32], |v| out_s(v[0] as i32 as f32)));
    cases.push(case("cvt.rn.f32.u32 %d, %a", F32, &[B32], |v| out_s(v[0] as u32 as f32)));
    cases.push(case("cvt.rn.f32.s64 %d, %a", F32, &[B64], |v| out_s(v[0] as i64 as f32)));
    cases.push(case("cvt.rn.f32.u64 %d, %a", F32, &[B64], |v| out_s(v[0] as f32)));
    cases.push(case("cvt.rn.f64.s64 %d, %a", F64, &[B64], |v| (v[0] as i64 as f64).to_bits()));
    cases.push(case("cvt.rn.f64.u64 %d, %a", F64, &[B64], |v| (v[0] as f64).to_bits()));
    cases.push(case("cvt.rn.f64.s32 %d, %a", F64, &[B32], |v| f64::from(v[0] as i32).to_bits()));
    cases.push(case("cvt.rn.f32.u16 %d, %a", F32, &[B16], |v| out_s(f32::from(v[0] as u16))));
    cases.push(case("cvt.rn.f32.s8 %d, %a", F32, &[B16], |v| out_s(f32::from(v[0] as i8))));
    cases.push(case("cvt.rn.f16.s32 %d, %a", B16, &[B32], |v| {
        f16::from_f64(f64::from(v[0] as i32)).to_bits().into()
    }));
    cases
}

fn narrow() -> Vec<Case> {
    let h = |bits: u64| f16::from_bits(bits as u16).to_f64();
    let b = |bits: u64| bf16::from_bits(bits as u16).to_f64();
    let out_h = |x: f64| u64::from(f16::from_f64(x).to_bits());
    // Through f64, which holds sums and products of two exactly or with digits to spare.
    let out_b = |x: f64| u64::from(bf16::from_f64(x).to_bits());
    vec![
        case("add.rn.f16 %d, %a, %b", B16, &[B16; 2], move |v| out_h(h(v[0]) + h(v[1])))
            .accept(same_h),
        case("sub.f16 %d, %a, %b", B16, &[B16; 2], move |v| out_h(h(v[0]) - h(v[1])))
            .accept(same_h),
        case("mul.f16 %d, %a, %b", B16, &[B16; 2], move |v| out_h(h(v[0]) * h(v[1])))
            .accept(same_h),
        case("neg.f16 %d, %a", B16, &[B16], |v| v[0] ^ 0x8000),
        case("abs.f16 %d, %a", B16, &[B16], |v| v[0] & 0x7fff).accept(same_h),
        case("add.bf16 %d, %a, %b", B16, &[B16; 2], move |v| out_b(b(v[0]) + b(v[1])))
            .accept(same_b),
        case("mul.bf16 %d, %a, %b", B16, &[B16; 2], move |v| out_b(b(v[0]) * b(v[1])))
            .accept(same_b),
        case("mul.f16x2 %d, %a, %b", B32, &[B32; 2], move |v| {
            out_h(h(v[0]) * h(v[1])) | out_h(h(v[0] >> 16) * h(v[1] >> 16)) << 16
        })
        .accept(|a, b| same_h(a & 0xffff, b & 0xffff) && same_h(a >> 16, b >> 16)),
        case("setp.lt.f16 %d, %a, %b", Pred, &[B16; 2], move |v| (h(v[0]) < h(v[1])).into()),
        case("setp.neu.bf16 %d, %a, %b", Pred, &[B16; 2], move |v| (b(v[0]) != b(v[1])).into()),
        // The product is exact; adding the same sign and size keeps the sum within 53 bits.
        case("fma.rn.f16 %d, %a, %b, %a", B16, &[B16; 2], move |v| {
            let (x, y) = (h(v[0]), h(v[1]));
            out_h(x.mul_add(y, x))
        })
        .accept(same_h),
    ]
}

/// The approximate functions, with the greatest error that the manual documents for each.
fn approximate() -> Vec<Case> {
    fn within(ours: u64, model: u64, relative: f64, absolute: f64) -> bool {
        let (ours, model) = (f64::from(s(ours)), f64::from(s(model)));
        ours.is_nan() && model.is_nan()
            || ours == model
            || (ours - model).abs() <= (model.abs() * relative).max(absolute)
    }
    vec![
        single("ex2.approx.f32 %d, %a", &[F32], |v| f64::from(v[0]).exp2() as f32)
            .accept(|a, b| within(a, b, f64::exp2(-22.0), f64::exp2(-149.0))),
        single("lg2.approx.f32 %d, %a", &[F32], |v| f64::from(v[0]).log2() as f32)
            .accept(|a, b| within(a, b, f64::exp2(-22.0), f64::exp2(-22.0))),
        single("rsqrt.approx.f32 %d, %a", &[F32], |v| (1.0 / f64::from(v[0]).sqrt()) as f32)
            .accept(|a, b| within(a, b, f64::exp2(-22.9), 0.0)),
        single("rcp.approx.f32 %d, %a", &[F32], |v| 1.0 / v[0])
            .accept(|a, b| within(a, b, f64::exp2(-23.0), 0.0)),
        single("sqrt.approx.f32 %d, %a", &[F32], |v| v[0].sqrt())
            .accept(|a, b| within(a, b, f64::exp2(-23.0), 0.0)),
        single("div.approx.f32 %d, %a, %b", &[F32, F32], |v| v[0] / v[1])
            .accept(|a, b| within(a, b, f64::exp2(-22.0), f64::exp2(-149.0))),
        single("div.full.f32 %d, %a, %b", &[F32, F32], |v| v[0] / v[1])
            .accept(|a, b| within(a, b, f64::exp2(-22.0), f64::exp2(-149.0))),
        single("sin.approx.f32 %d, %a", &[F32], |v| f64::from(v[0]).sin() as f32)
            .accept(|a, b| within(a, b, 0.0, f64::exp2(-20.5))),
        single("cos.approx.f32 %d, %a", &[F32], |v| f64::from(v[0]).cos() as f32)
            .accept(|a, b| within(a, b, 0.0, f64::exp2(-20.5))),
        single("tanh.approx.f32 %d, %a", &[F32], |v| f64::from(v[0]).tanh() as f32)
            .accept(|a, b| within(a, b, f64::exp2(-11.0), 0.0)),
    ]
}

/// Numbers of moderate size, so that exact results fit an `f64`.
fn moderate_rows() -> Vec<[u64; 3]> {
    random_rows(3000, 0xabcd)
        .into_iter()
        .map(|row| {
            let single = |bits: u64| (bits >> 8) as f32 / 16_777_216.0 - 100.0;
            // For the conversions from f64 the upper half must be a number too.
            row.map(|v| {
                u64::from(single(v & 0xffff_ffff).to_bits())
                    | 0x3fe0_0000_0000_0000
                    | v & 0x000f_ffff_0000_0000
            })
        })
        .collect()
}

#[test]
fn arithmetic_on_special_and_random_values() {
    let table = Table::new(arithmetic());
    table.check(&special_rows());
    table.check(&random_rows(3000, 77));
}

#[test]
fn directed_rounding() {
    Table::new(directed()).check(&moderate_rows());
}

#[test]
fn conversions_of_special_and_random_values() {
    let table = Table::new(conversions());
    table.check(&special_rows());
    table.check(&random_rows(3000, 78));
}

#[test]
fn sixteen_bit_types() {
    let table = Table::new(narrow());
    table.check(&special_rows());
    table.check(&random_rows(3000, 79));
}

#[test]
fn approximate_functions_are_within_their_error() {
    let table = Table::new(approximate());
    table.check(&special_rows());
    table.check(&random_rows(3000, 80));
}

/// Programs print it, and its sign shows: the processor's own NaN would read `-nan`.
#[test]
fn not_a_number_has_the_bits_of_hardware() {
    let nan = |text: &str| case(text, F32, &[F32], |_| 0x7fff_ffff);
    let wide =
        case("{ .reg .f32 %q; sqrt.rn.f32 %q, %a; cvt.f64.f32 %d, %q; }", F64, &[F32], |_| {
            0x7fff_ffff_e000_0000
        });
    let table = Table::new(vec![
        nan("sqrt.rn.f32 %d, %a"),
        nan("{ .reg .f32 %q; sub.f32 %q, %a, %a; div.rn.f32 %d, %q, %q; }"),
        nan("{ .reg .f32 %q; sqrt.rn.f32 %q, %a; neg.f32 %q, %q; add.f32 %d, %q, %a; }"),
        nan("{ .reg .f32 %q; .reg .b32 %m; sqrt.rn.f32 %q, %a; mov.b32 %m, %q; mov.b32 %d, %m; }"),
        wide,
    ]);
    table.check(&[[out_s(-1.0), 0, 0], [out_s(-2.5e30), 0, 0]]);
    // Bits that are only copied stay as they are.
    let copies = vec![
        case("mov.f32 %d, %a", F32, &[F32], |v| v[0]),
        case("selp.f32 %d, %a, %b, %c", F32, &[F32, F32, Pred], |v| {
            if v[2] != 0 { v[0] } else { v[1] }
        }),
    ];
    Table::new(copies).check(&[[0xffc0_1234, 0x7f80_0001, 1], [0xffc0_1234, 0x7f80_0001, 0]]);
}
