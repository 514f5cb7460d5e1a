//! Small texts that would take long to compile are refused, by kernel and size; large kernels as
//! compilers make them are not.

mod common;

use std::fmt::Write;
use std::time::{Duration, Instant};

use common::HEADER;
use outboard_simt::LoadError;

/// A kernel with that body.
fn kernel(registers: usize, body: &str) -> String {
    format!(
        "{HEADER}.visible .entry wide(.param .u64 out)\n{{\n.reg .b32 %r<{}>;\n.reg .b64 %d<4>;\n.reg .pred %p<4>;\n\
         ld.param.u64 %d1, [out];\nld.global.u32 %r0, [%d1];\nsetp.eq.u32 %p1, %r0, 0;\n{body}ret;\n}}\n",
        registers + 1
    )
}

/// So many values that are all needed at the end, and in between `middle`.
fn across(registers: usize, middle: &str) -> String {
    let mut body = String::new();
    (1..=registers).for_each(|reg| writeln!(body, "add.u32 %r{reg}, %r0, {reg};").unwrap());
    body.push_str(middle);
    (1..=registers).for_each(|reg| writeln!(body, "add.u32 %r0, %r0, %r{reg};").unwrap());
    body.push_str("st.global.u32 [%d1], %r0;\n");
    kernel(registers, &body)
}

fn repeated(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect()
}

/// Loads a text; how it went, and how long it took.
fn load(text: &str) -> (Result<(), LoadError>, Duration) {
    let module = outboard_ptx::parse(text).expect("valid PTX");
    let begun = Instant::now();
    let outcome = common::engine().load(&[&module]).map(drop);
    (outcome, begun.elapsed())
}

#[test]
fn what_would_take_the_square_of_its_length_is_refused() {
    let branches =
        |count| repeated(count, |i| format!("@%p1 bra L{i};\nxor.b32 %r0, %r0, 1;\nL{i}:\n"));
    let guards = |count| repeated(count, |i| format!("@%p1 xor.b32 %r0, %r0, {i};\n"));
    let loads = |count| repeated(count, |_| "ld.global.u32 %r0, [%d1];\n".to_owned());
    let table = |count: usize, targets: usize| {
        let labels = repeated(targets, |i| format!("{}L{i}", if i == 0 { "" } else { ", " }));
        let jumps = repeated(count, |_| "@%p1 brx.idx %r0, table;\n".to_owned());
        kernel(
            1,
            &format!(
                "table: .branchtargets {labels};\n{jumps}{}",
                repeated(targets, |i| format!("L{i}:\nxor.b32 %r0, %r0, 1;\n"))
            ),
        )
    };
    for (what, text) in [
        ("branches", across(30_000, &branches(30_000))),
        ("guards", across(30_000, &guards(30_000))),
        ("loads", across(30_000, &loads(30_000))),
        ("tables", table(20_000, 200)),
    ] {
        let (outcome, time) = load(&text);
        let Err(LoadError::TooLarge { function, registers, .. }) = outcome else {
            panic!("{what}: {outcome:?}")
        };
        assert!(function == "wide" && registers > 0, "{what}");
        assert!(time < Duration::from_secs(10), "{what}: {time:?}");
    }
}

#[test]
fn large_kernels_as_compilers_make_them_are_compiled() {
    // 200 values alive over 3,000 loads and branches, and tens of thousands of registers that live
    // shortly.
    let body = repeated(3_000, |i| {
        let new = 200 + i * 4;
        format!(
            "ld.global.u32 %r{a}, [%d1];\nmad.lo.u32 %r{b}, %r{a}, %r{old}, %r0;\n@%p1 bra L{i};\nxor.b32 %r{b}, %r{b}, 1;\nL{i}:\n\
             add.u32 %r{old}, %r{old}, %r{b};\n",
            a = new + 1,
            b = new + 2,
            old = i % 200 + 1
        )
    });
    let mut all = String::new();
    (1..=200).for_each(|reg| writeln!(all, "add.u32 %r{reg}, %r0, {reg};").unwrap());
    all.push_str(&body);
    (1..=200).for_each(|reg| writeln!(all, "st.global.u32 [%d1], %r{reg};").unwrap());
    let (outcome, _) = load(&kernel(13_000, &all));
    assert_eq!(outcome, Ok(()));
}

#[test]
fn compiling_ends_at_its_time() {
    let many = repeated(400, |i| {
        kernel(1, &repeated(100, |_| "ld.global.u32 %r0, [%d1];\n".to_owned()))
            .replace("wide", &format!("k{i}"))
    });
    let text = format!("{HEADER}{}", many.replace(HEADER, ""));
    let module = outboard_ptx::parse(&text).expect("valid PTX");
    let limit = Duration::from_millis(20);
    let begun = Instant::now();
    let outcome = common::engine_with(limit).load(&[&module]).map(drop);
    let Err(LoadError::TooLong { compiled, functions: 400, .. }) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(compiled < 400, "{compiled}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(
        common::engine().load(&[&module]).map(drop),
        Ok(()),
        "it is not refused for anything else"
    );
}
