//! Programs of the suite over transports that not all of it runs over each time: some need an
//! emulated machine.

use std::time::Duration;

use crate::program::{Outcome, Program, suite};

/// What has to do with how commands and memory travel.
const USUAL: [&str; 7] = [
    "burst",
    "copies_2d_3d",
    "errors",
    "fork",
    "graph_capture",
    "host_functions",
    "registered_copies",
];
/// Set to `FIRST..LAST`: the programs of the suite from one name to another are run, not only the
/// usual ones; `..` for all, which take an hour in an emulated machine.
const WANTED: &str = "OUTBOARD_TEST_SUITE";
/// Of these the parts are run one by one: all together they copy 7 GB, which takes too long there.
const IN_PARTS: (&str, u32) = ("queued_copies", 9);
/// How long one may take, on an emulated processor.
const LONGEST: Duration = Duration::from_secs(900);

/// Runs programs of the suite directly and by `remotely`, with what `prepared` adds to both; fails
/// if one of them ends otherwise or says anything else.
pub fn compare_suite(
    prepared: impl Fn(Program) -> Program,
    remotely: impl Fn(&Program) -> Outcome,
) {
    let wanted = std::env::var(WANTED).ok();
    let wanted = wanted.as_ref().map(|wanted| wanted.split_once("..").expect("FIRST..LAST"));
    let is_wanted = |name: &str| match wanted {
        Some((first, last)) => name >= first && (last.is_empty() || name <= last),
        None => USUAL.contains(&name),
    };
    let (mut count, mut failed) = (0, Vec::new());
    for case in suite().into_iter().filter(|case| is_wanted(&case.name)) {
        let programs = match IN_PARTS {
            (name, parts) if name == case.name => {
                (1..=parts).map(|part| case.program().arg(&part.to_string())).collect()
            }
            _ => vec![case.program()],
        };
        for program in programs {
            count += 1;
            let program = prepared(program).at_most(LONGEST);
            let (direct, remote) = (program.directly(), remotely(&program));
            direct.expect_success(&case.name);
            if !remote.status.success() || direct.stdout != remote.stdout {
                let Outcome { status, stdout, stderr, .. } = remote;
                eprintln!("{} remotely: {status}\n{stdout}{stderr}", case.name);
                failed.push(case.name.clone());
            } else {
                eprintln!(
                    "{}: {:?} directly, {:?} remotely",
                    case.name, direct.taken, remote.taken
                );
            }
        }
    }
    assert!(count >= if wanted.is_some() { 1 } else { USUAL.len() }, "{count} programs");
    assert!(failed.is_empty(), "{} of {count} programs: {failed:?}", failed.len());
}
