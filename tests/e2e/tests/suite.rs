//! Every test program, directly on the device and through a server: both end well, and their output
//! is the same. Over TCP all of them, and those that have to do with how commands and memory reach
//! the device through shared memory, too. `OUTBOARD_E2E_TRANSPORT=shm` has all share memory.

use libtest_mimic::{Arguments, Failed, Trial};
use outboard_e2e::{Case, Driver, Found, Server, suite};
use std::sync::{Arc, OnceLock};

fn main() {
    let mut arguments = Arguments::from_args();
    // Programs have threads of their own; two at once keep a small machine busy. On a GPU some use
    // all of its memory.
    let on_gpu = Driver::chosen() == Driver::Nvidia;
    arguments.test_threads.get_or_insert(if on_gpu { 1 } else { 2 });
    let (server, direct) = (Arc::new(OnceLock::new()), Arc::new(Direct::default()));
    let trial = |case: &Case, shared: bool| {
        let (server, direct, case) = (Arc::clone(&server), Arc::clone(&direct), case.clone());
        let name =
            if shared { format!("{} in shared memory", case.name) } else { case.name.clone() };
        // Some find a worker that waited for them, some do not: nobody may notice.
        let start =
            || Server::start_with(&["--driver", Driver::chosen().name(), "--warm", "1"], &[]);
        let left_out = on_gpu && NOT_ON_A_GPU.contains(&case.name.as_str());
        Trial::test(name, move || compare(&case, shared, server.get_or_init(start), &direct))
            .with_ignored_flag(left_out)
    };
    let cases = suite();
    let shared = cases.iter().filter(|case| SHARED.contains(&case.name.as_str()));
    let trials = cases
        .iter()
        .map(|case| trial(case, false))
        .chain(shared.map(|case| trial(case, true)))
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    // `exit` skips destructors, so the server is stopped first.
    drop(server);
    conclusion.exit();
}

/// What does not run on a GPU here: no GPU promises that a warp without barriers stays in step, and
/// `credit` fills a GPU of which workers take memory meanwhile (`tests/credit.rs` runs it alone).
const NOT_ON_A_GPU: &[&str] = &["warp_in_step", "credit"];

/// What runs in shared memory as well.
const SHARED: &[&str] = &[
    "allocations",
    "burst",
    "closed_streams",
    "copies_2d_3d",
    "driver_memory",
    "errors",
    "exit_running",
    "fork",
    "graph_capture",
    "graph_explicit",
    "graph_host",
    "graph_memory",
    "graph_update",
    "host_functions",
    "host_threads",
    "ipc",
    "managed_memory",
    "mapped_memory",
    "memset_copy",
    "order",
    "pointer_attributes",
    "queued_copies",
    "registered_copies",
    "registered_memory",
    "system_calls",
];

/// What each case says directly on the device, or why it fails there.
type Direct = Found<String, Result<String, String>>;

fn said_directly(case: &Case) -> Result<String, String> {
    let outcome = case.program().directly();
    if outcome.status.success() {
        return Ok(outcome.stdout);
    }
    Err(format!("directly: {}\n{}{}", outcome.status, outcome.stdout, outcome.stderr))
}

fn compare(case: &Case, shared: bool, server: &Server, direct: &Direct) -> Result<(), Failed> {
    let direct = direct.get(case.name.clone(), || said_directly(case))?;
    let program = case.program();
    let remote = if shared { program.sharing_memory() } else { program }.through(server);
    if !remote.status.success() {
        return Err(format!(
            "through a server: {}\n{}{}",
            remote.status, remote.stdout, remote.stderr
        )
        .into());
    }
    if direct != remote.stdout {
        return Err(format!(
            "output differs\n--- directly\n{direct}--- through a server\n{}",
            remote.stdout
        )
        .into());
    }
    Ok(())
}
