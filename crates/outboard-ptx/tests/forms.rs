//! Which of the instruction forms that real programs use are accepted.
//!
//! `data/forms.txt` lists the 466 forms that the compiler of CUDA 13.0 emits for a survey of sample
//! programs. Each is given operands by rule and put into a kernel of its own.

use outboard_ptx::{ErrorKind, Type, parse};

/// Families that the software device does not have; all other forms must be accepted.
const NOT_SUPPORTED: &[&str] = &["cp.async.bulk", "wmma"];

/// A register (declared in the test kernel) as wide as a type.
fn reg(ty: Type) -> &'static str {
    match (ty, ty.size()) {
        (Type::Pred, _) => "%p1",
        (_, 1 | 2) => "%h1",
        (_, 4) => "%r1",
        (_, 8) => "%d1",
        _ => "%q1",
    }
}

fn vector(form: &str, element: &str) -> String {
    let count =
        [("v2", 2), ("v4", 4)].iter().find(|(name, _)| form.split('.').any(|word| word == *name));
    match count {
        None => element.to_owned(),
        Some((_, count)) => format!("{{{}}}", vec![element; *count].join(", ")),
    }
}

/// Operands for a form, by opcode and types.
fn operands(form: &str) -> String {
    let words: Vec<&str> = form.split('.').collect();
    let types: Vec<Type> = words.iter().filter_map(|word| Type::from_name(word)).collect();
    let first = types.first().map_or("%r1", |&ty| reg(ty));
    let last = types.last().map_or("%r1", |&ty| reg(ty));
    let wide = match first {
        "%h1" => "%r1",
        _ => "%d1",
    };
    let has = |word: &str| words.contains(&word);
    let addr = match form {
        _ if has("param") => "[pa]",
        _ if has("shared") || has("shared::cta") => "[sh]",
        _ if has("const") => "[co]",
        _ => "[%d2]",
    };
    let texel = || {
        let count = match words
            .iter()
            .find(|word| matches!(**word, "1d" | "2d" | "3d" | "a1d" | "a2d" | "cube" | "acube"))
        {
            Some(&"1d") => 1,
            Some(&"2d" | &"a1d") => 2,
            _ => 4,
        };
        format!("[%d1, {{{}}}]", vec!["%r1"; count].join(", "))
    };
    match words[0] {
        "tex" if has("level") => format!("{}, {}, %r2", vector(form, "%r1"), texel()),
        "tex" => format!("{}, {}", vector(form, "%r1"), texel()),
        "suld" => format!("{}, {}", vector(form, last), texel()),
        "sust" => format!("{}, {}", texel(), vector(form, last)),
        "ret" | "exit" | "trap" | "membar" | "fence" | "griddepcontrol" => String::new(),
        "bra" => "end".into(),
        "call" => "callee".into(),
        "ld" => format!("{}, {addr}", vector(form, last)),
        // A kernel cannot store to its parameters, only to those of its calls.
        "st" => format!("{}, {}", if has("param") { "[pv]" } else { addr }, vector(form, last)),
        "atom" if has("cas") => format!("{last}, {addr}, {last}, {last}"),
        "atom" => format!("{last}, {addr}, {last}"),
        "red" => format!("{addr}, {last}"),
        "cp" if has("commit_group") => String::new(),
        "cp" if has("wait_group") => "0".into(),
        "cp" if has("mbarrier") => "[sh]".into(),
        "cp" => "[sh], [%d1], 16".into(),
        "mbarrier" if has("init") || has("expect_tx") => "[sh], 1".into(),
        "mbarrier" if has("inval") => "[sh]".into(),
        "mbarrier" if has("arrive") => "%d1, [sh]".into(),
        "mbarrier" if has("parity") => "%p1, [sh], %r1".into(),
        "mbarrier" => "%p1, [sh], %d1".into(),
        "bar" if has("warp") => "0xffffffff".into(),
        "bar" if has("red") => "%p1, 0, %p2".into(),
        "bar" | "barrier" => "0".into(),
        "shfl" => "%r1|%p1, %r1, 1, 31, -1".into(),
        "vote" => format!("{first}, %p1, -1"),
        "match" => format!("%r1, {first}, -1"),
        "redux" => "%r1, %r2, -1".into(),
        "activemask" | "nanosleep" => "%r1".into(),
        "setp" => format!("%p1, {first}, {first}"),
        "selp" => format!("{first}, {first}, {first}, %p1"),
        "cvt" => format!("{}, {}", reg(types[0]), reg(types[1])),
        "cvta" => "%d1, %d2".into(),
        "mov" | "neg" | "abs" | "not" | "brev" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos"
        | "ex2" | "lg2" => {
            format!("{first}, {first}")
        }
        "popc" | "clz" | "bfind" => format!("%r1, {first}"),
        "mul" if has("wide") => format!("{wide}, {first}, {first}"),
        "mad" if has("wide") => format!("{wide}, {first}, {first}, {wide}"),
        "mad" | "fma" | "shf" | "vabsdiff4" => format!("{first}, {first}, {first}, {first}"),
        "shl" | "shr" => format!("{first}, {first}, %r1"),
        "bfi" => format!("{first}, {first}, {first}, %r1, %r2"),
        _ => format!("{first}, {first}, {first}"),
    }
}

fn module(instruction: &str) -> String {
    format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n\
         .shared .align 16 .b8 sh[64];\n.const .align 16 .b8 co[64];\n\
         .func callee() {{ ret; }}\n\
         .entry kernel(.param .align 16 .b8 pa[64]) {{\n\
         .reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<4>;\n.reg .b64 %d<4>;\n.reg .b128 %q<4>;\n\
         .param .align 16 .b8 pv[64];\n\
         {instruction};\nend: ret;\n}}\n"
    )
}

#[test]
fn forms_of_real_programs_are_accepted() {
    let mut accepted = 0;
    for form in include_str!("data/forms.txt").lines() {
        let result = parse(&module(&format!("{form} {}", operands(form))));
        if NOT_SUPPORTED.iter().any(|family| form.starts_with(family)) {
            let error = result.expect_err(form);
            assert_eq!(error.kind, ErrorKind::UnsupportedInstruction(form.to_owned()));
            assert_eq!(error.function.map(|function| function.name).as_deref(), Some("kernel"));
        } else {
            result.unwrap_or_else(|error| panic!("{form} {}: {error}", operands(form)));
            accepted += 1;
        }
    }
    assert_eq!(accepted, 434);
}
